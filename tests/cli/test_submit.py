"""The calls that `headgate submit --print` prints."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

import headgate as package
from headgate.cluster.settings import same_python
from headgate.engine.submit import spark_submit
from headgate.jars.jars import jar_home
from tests.cli.conftest import Headgate
from tests.cli.snapshot import Snapshot

CANARY = "canary-that-must-not-be-seen"
PIPELINE = """
name: games
source: {kafka: {servers: "broker:9092", topics: [games]}}
registry: {url: "http://registry:8081", token: env:REGISTRY_TOKEN}
envelope: confluent
lake: s3://lake/games
storage: {access_key: env:S3_KEY, secret_key: env:S3_SECRET}
spark:
  spark.executor.memory: 2g
  spark.driver.host: driver.example.org
  spark.driver.port: 40000
  spark.ssl.keyPassword: env:SSL_PASSWORD
"""


@pytest.fixture
def pipeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("REGISTRY_TOKEN", "S3_KEY", "S3_SECRET", "SSL_PASSWORD"):
        monkeypatch.setenv(name, CANARY)
    monkeypatch.delenv("MASTER", raising=False)
    monkeypatch.delenv("SPARK_HOME", raising=False)
    (tmp_path / "pack.tar.gz").touch()
    file = tmp_path / "games.yaml"
    file.write_text(PIPELINE)
    return file


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("standalone", ("--master", "spark://main:7077", "--once")),
        ("yarn", ("--master", "yarn", "--deploy-mode", "cluster", "--shard", "2/4")),
        (
            "kubernetes",
            (
                *("--master", "k8s://https://main:6443", "--deploy-mode", "cluster"),
                *("--conf", "spark.kubernetes.file.upload.path=s3a://lake/upload"),
                *("--conf", "spark.executor.memory=4g"),
            ),
        ),
    ],
)
def test_submit_prints_the_call(
    headgate: Headgate, pipeline: Path, snapshot: Snapshot, name: str, arguments: tuple[str, ...]
) -> None:
    pack = "hdfs:///packs/headgate.tar.gz" if name == "yarn" else "pack.tar.gz"
    printed = headgate("submit", pipeline, "--print", "--pack", pack, *arguments)
    assert printed.code == 0, printed.err
    assert CANARY not in printed.out + printed.err
    jars = re.sub(r"(--jars )\S+", r"\1<jars>", printed.out.replace(str(jar_home()), ""))
    (
        snapshot.also(spark_submit(), "spark-submit")
        .also(os.path.dirname(package.__file__), "<headgate>")
        .also(f"={same_python()}", "=<python>")
        .also(sys.executable, "<this python>")
        .check(jars + printed.err)
    )


def test_lake_on_this_machine_is_warned_about(headgate: Headgate, pipeline: Path) -> None:
    text = PIPELINE.replace("s3://lake/games", "./lake")
    pipeline.write_text(re.sub(r"storage: .*\n", "", text))
    master = ("--master", "spark://main:7077")
    printed = headgate("submit", pipeline, "--print", "--pack", "none", *master)
    assert printed.code == 0
    assert f"`lake` must be on a mount of all machines: {pipeline.parent}/lake" in printed.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "no master"),
        (("--master", "local[2]"), "the master is not a cluster: local[2]"),
        (
            ("--master", "spark://main:7077", "--deploy-mode", "cluster"),
            "a standalone cluster does not run drivers of Python programs",
        ),
        (("--master", "yarn", "--deploy-mode", "both"), "--deploy-mode is `client` or `cluster`"),
        (("--master", "yarn", "--pack", "missing.tar.gz"), "there is no file missing.tar.gz"),
        (("--master", "yarn", "--conf", "executor.memory=1g"), "is not a Spark setting"),
        (("--master", "yarn", "--conf", "spark.executor.memory"), "--conf needs KEY=VALUE"),
        (
            ("--master", "yarn", "--conf", f"spark.hadoop.fs.s3a.secret.key={CANARY}"),
            "must be a reference, not the secret itself",
        ),
    ],
)
def test_wrong_arguments_are_refused(
    headgate: Headgate, pipeline: Path, arguments: tuple[str, ...], message: str
) -> None:
    printed = headgate("submit", pipeline, *arguments)
    assert printed.code == 2
    assert message in printed.err
    assert CANARY not in printed.err
