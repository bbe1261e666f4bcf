"""Secrets of Spark's settings: Spark has them, and nothing that others can read shows them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

MARK = "hunter2-in-a"
IN_FILE, IN_VARIABLE = f"{MARK}-file", f"{MARK}-variable"

PIPELINE = """\
name: games
source: {{kafka: {{servers: "localhost:9092", topics: [games], security: {{
  protocol: SASL_SSL, mechanism: PLAIN, username: me, password: "file:{folder}/secret"}},
  options: {{
    kafka.ssl.key.password: "file:{folder}/secret", kafka.client.rack: "env:HEADGATE_TEST_SECRET"
  }}}}}}
registry: {folder}/schemas
envelope: confluent
lake: {folder}/lake
spark:
  spark.hadoop.fs.s3a.secret.key: "file:{folder}/secret"
  spark.hadoop.fs.azure.account.key.acme.dfs.core.windows.net: "file:{folder}/secret"
  spark.hadoop.fs.azure.sas.box.acme.blob.core.windows.net: "file:{folder}/secret"
  spark.hadoop.fs.acme.plain.name: env:HEADGATE_TEST_SECRET
  spark.ssl.keyPassword: "file:{folder}/secret"
  spark.acme.thing: env:HEADGATE_TEST_SECRET
  spark.eventLog.enabled: true
  spark.eventLog.compress: false
  spark.eventLog.dir: file:{folder}/events
  spark.ui.enabled: true
  spark.ui.port: 0
  spark.driver.memory: 512m
"""

PROGRAM = """\
import sys
from pathlib import Path
from urllib.request import urlopen
from headgate.config import load_pipeline
from headgate.engine.session import pipeline_session
from headgate.sources.kafka import stream_topics

folder = Path(sys.argv[1])
pipeline = load_pipeline(folder / "games.yaml")
spark = pipeline_session(pipeline)
context = spark.sparkContext
hadoop = context._jsc.hadoopConfiguration()
secret = (folder / "secret").read_text()
for name in (
    "fs.s3a.secret.key",
    "fs.azure.account.key.acme.dfs.core.windows.net",
    "fs.azure.sas.box.acme.blob.core.windows.net",
):
    assert hadoop.get(name) == secret, name
assert context.getConf().get("spark.ssl.keyPassword") == secret
assert context.getConf().get("spark.acme.thing").startswith("hunter2")
assert hadoop.get("fs.acme.plain.name").startswith("hunter2")
assert context.getConf().get("spark.driver.memory") == "512m"
assert pipeline_session(pipeline) is spark
spark.range(3).selectExpr("sum(id)").collect()
for row in (*spark.sql("SET").collect(), *spark.sql("SET -v").collect()):
    print(row)
print(spark.sql("SET spark.hadoop.fs.acme.plain.name").collect())
stream_topics(spark, pipeline.source).explain(True)
print(urlopen(context.uiWebUrl + "/environment/").read().decode())
print(pipeline)
(folder / "ready").touch()
sys.stdin.readline()
spark.stop()
"""


def processes() -> set[int]:
    return {int(name) for name in os.listdir("/proc") if name.isdigit()}


def read(pid: int, what: str) -> str:
    try:
        return Path(f"/proc/{pid}/{what}").read_bytes().decode("utf-8", "replace")
    except OSError:
        return ""


def test_secret_reaches_spark_and_is_shown_nowhere(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(IN_FILE)
    (tmp_path / "events").mkdir()
    (tmp_path / "games.yaml").write_text(PIPELINE.format(folder=tmp_path))
    others = processes()
    command_lines: dict[int, set[str]] = {}
    environments: set[str] = set()
    with (
        (tmp_path / "out").open("w") as out,
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(tmp_path)],
            stdin=subprocess.PIPE,
            stdout=out,
            stderr=subprocess.STDOUT,
            env={**os.environ, "HEADGATE_TEST_SECRET": IN_VARIABLE},
        ) as program,
    ):
        # Also of processes that live for an instant, such as Spark's launcher.
        while program.poll() is None and not (tmp_path / "ready").exists():
            for pid in processes() - others:
                command_lines.setdefault(pid, set()).add(read(pid, "cmdline"))
                environments.add(read(pid, "environ"))
            time.sleep(0.002)
        program.communicate(b"\n", timeout=60)
    printed = (tmp_path / "out").read_text()
    assert program.returncode == 0, printed[-3000:]
    lines = [line for of_process in command_lines.values() for line in of_process]
    assert any("org.apache.spark.deploy.SparkSubmit" in line for line in lines)
    assert not [line for line in lines if MARK in line]
    assert not [one for one in environments if IN_FILE in one]
    (log,) = [
        path
        for path in (tmp_path / "events").rglob("*")
        if path.is_file() and path.stat().st_size > 1000
    ]
    events = log.read_text()
    assert "fs.acme.plain.name" in events
    assert MARK not in events
    assert "fs.acme.plain.name" in printed
    assert MARK not in printed


def test_error_of_a_missing_secret_comes_before_spark_starts(tmp_path: Path) -> None:
    (tmp_path / "games.yaml").write_text(PIPELINE.format(folder=tmp_path))
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1
    assert "secret-missing" in done.stderr


@pytest.fixture(autouse=True)
def _only_on_linux() -> None:
    if not Path("/proc/self/cmdline").exists():
        pytest.skip("command lines are read from /proc")
