from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from headgate.config import (
    Confluent,
    Contract,
    Delta,
    Duration,
    Expectation,
    GoldQuery,
    InvalidPipeline,
    Kafka,
    PipelineConfig,
    Registry,
    Secret,
    Security,
    Size,
    Storage,
    Wrapper,
    load_pipeline,
)
from headgate.config.pipeline import CHANGE_KEYS
from headgate.errors import PipelineFileError

SMALL = """\
name: games
source: {kafka: {servers: "localhost:9092", topics: [games]}}
registry: ./schemas
envelope:
  wrapper: {message: wrapper, route: game_name, schema_id: schema_id, payload: payload}
lake: ./lake
"""
WHOLE = """\
name: games
source:
  kafka:
    servers: "localhost:9092"
    pattern: "games-.*"
    start: 2026-11-01 12:00:00
    batch: 500
    security:
      protocol: SASL_SSL
      mechanism: PLAIN
      username: env:KAFKA_USER
      password: env:KAFKA_PASSWORD
      ca: ca.pem
    options: {kafka.session.timeout.ms: 30000}
registry:
  url: http://localhost:8081/apis/ccompat/v7
  username: me
  password: file:pw
  timeout: 2 minutes
envelope: {confluent: {route: record}}
lake: file:///data/lake
checkpoint: ../checkpoint
bronze: bronze_games
silver: "{route}_silver"
quarantine: bad_games
ledger: journal
contract: evolve
expect: {"*_silver": {has_user: user IS NOT NULL}}
gold: {"gold_{route}_rows": SELECT count(*) AS number FROM silver}
max_tables: 1000
max_record_bytes: 1g
trigger: 500ms
commit: delta-rs
spark: {spark.driver.memory: 2g, spark.ui.enabled: false}
"""
WRAPPER = Wrapper(message="wrapper", route="game_name", schema_id="schema_id", payload="payload")
KAFKA = Kafka(servers="localhost:9092", topics=["games"])

Write = Callable[[str], Path]


def build(**fields: Any) -> PipelineConfig:
    """Build a pipeline in a few lines, as a user would."""
    small = {"name": "games", "source": KAFKA, "registry": "./schemas", "envelope": WRAPPER}
    return PipelineConfig(**{**small, "lake": "./lake", **fields})


def test_pipeline_built_in_python_equals_the_loaded_one(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(SMALL)
    monkeypatch.chdir(path.parent)
    assert build() == load_pipeline(path)
    assert build(name="others") != load_pipeline(path)


def test_pipeline_has_defaults(write: Write) -> None:
    path = write(SMALL)
    folder = path.parent
    pipeline = load_pipeline(path)
    assert {key: value for key, value in pipeline if key not in CHANGE_KEYS} == {
        "name": "games",
        "source": Kafka(
            servers="localhost:9092", topics=["games"], start="earliest", batch=1_000_000
        ),
        "registry": Registry(folder=str(folder / "schemas"), timeout=Duration(seconds=60)),
        "envelope": WRAPPER,
        "lake": str(folder / "lake"),
        "checkpoint": str(folder / "lake/_checkpoints/games"),
        "storage": Storage(),
        "maintain": None,
        "workflow": None,
        "catalog": None,
        "grants": (),
        "bronze": None,
        "silver": "silver_{route}",
        "quarantine_table": "quarantine",
        "ledger": "ledger",
        "contract": Contract(),
        "expect": {},
        "gold": {},
        "max_tables": 2000,
        "max_record_bytes": Size.parse("16 MB"),
        "shards": 1,
        "predict": {},
        "train": {},
        "trigger": Duration(seconds=10),
        "commit": "auto",
        "spark": {},
    }


def test_pipeline_reads_every_key(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(WHOLE)
    folder = path.parent
    monkeypatch.chdir(folder)
    assert load_pipeline(path) == PipelineConfig(
        name="games",
        source=Kafka(
            servers="localhost:9092",
            pattern="games-.*",
            start=datetime(2026, 11, 1, 12),
            batch=500,
            security=Security(
                protocol="SASL_SSL",
                mechanism="PLAIN",
                username=Secret("env", "KAFKA_USER"),
                password=Secret("env", "KAFKA_PASSWORD"),
                ca="ca.pem",
            ),
            options={"kafka.session.timeout.ms": "30000"},
        ),
        registry=Registry(
            url="http://localhost:8081/apis/ccompat/v7",
            username="me",
            password=Secret.parse("file:pw"),
            timeout=Duration(minutes=2),
        ),
        envelope=Confluent(route="record"),
        lake="file:///data/lake",
        checkpoint="../checkpoint",
        bronze="bronze_games",
        silver="{route}_silver",
        quarantine="bad_games",
        ledger="journal",
        contract=Contract(),
        expect={"*_silver": {"has_user": Expectation(rule="user IS NOT NULL")}},
        gold={"gold_{route}_rows": GoldQuery(sql="SELECT count(*) AS number FROM silver")},
        max_tables=1000,
        max_record_bytes=Size.parse("1 GB"),
        trigger=Duration(milliseconds=500),
        commit="delta-rs",
        spark={"spark.driver.memory": "2g", "spark.ui.enabled": "false"},
    )


def test_pipeline_knows_its_file(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(SMALL)
    monkeypatch.chdir(path.parent)
    assert load_pipeline("games.yaml").file == "games.yaml"
    assert load_pipeline(path).file == str(path)
    assert build().file is None


def test_pipeline_paths_are_relative_to_the_file_and_other_urls_are_kept(write: Write) -> None:
    text = SMALL.replace("./lake", "~/lake").replace("./schemas", "file:///schemas")
    path = write(text.replace("source: {kafka", "checkpoint: s3a://b@c/d\nsource: {kafka"))
    pipeline = load_pipeline(os.path.relpath(path))
    assert pipeline.lake == os.path.expanduser("~/lake")
    assert pipeline.schema_registry.folder == "/schemas"
    assert pipeline.checkpoint == "s3a://b@c/d"


def test_pipeline_checkpoint_is_in_the_lake_by_default() -> None:
    assert build(lake="file:///data/lake/").checkpoint == "/data/lake/_checkpoints/games"
    assert build(lake=Path("/data/lake")).checkpoint == "/data/lake/_checkpoints/games"


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("file:///data/lake/", "/data/lake"),
        ("file:/data/lake", "/data/lake"),
        ("FILE://localhost/data/a%20lake", "/data/a lake"),
    ],
)
def test_file_urls_are_paths(url: str, path: str) -> None:
    assert build(lake=url).lake == path


@pytest.mark.parametrize("url", ["file://data/lake", "file:lake", "file:///a%00b"])
def test_other_file_urls_are_refused(url: str) -> None:
    with pytest.raises(InvalidPipeline, match="is not a file on this machine"):
        build(lake=url)


def test_pipeline_reads_delta_as_the_source(write: Write) -> None:
    path = write(
        SMALL.replace(
            '{kafka: {servers: "localhost:9092", topics: [games]}}', "{delta: {path: in}}"
        )
    )
    assert load_pipeline(path).source == Delta(
        path=str(path.parent / "in"), start="earliest", batch=Size.parse("512 MB")
    )
    assert build(source={"delta": {"path": "/in", "start": 7}}).source == Delta(path="/in", start=7)


@pytest.mark.parametrize("written", ["confluent", "{confluent: }", "{confluent: {route: topic}}"])
def test_pipeline_accepts_the_short_form_of_confluent(written: str, write: Write) -> None:
    text = SMALL[: SMALL.index("envelope")] + f"envelope: {written}\nlake: ./lake\n"
    assert load_pipeline(write(text)).envelope == Confluent()


def test_pipeline_wrapper_finds_its_proto_beside_the_file(write: Write) -> None:
    path = write(SMALL.replace("payload: payload", "payload: payload, proto: wrapper.proto"))
    proto = path.parent / "wrapper.proto"
    proto.touch()
    envelope = load_pipeline(path).envelope
    assert isinstance(envelope, Wrapper)
    assert envelope.proto == str(proto)


@pytest.mark.parametrize(
    ("written", "message"),
    [("Move", "Move"), ("games.v1.Move", "games.v1.Move"), ("{go: Stone, ch*: Move}", "Move")],
)
def test_pipeline_wrapper_names_payload_messages_by_route(
    written: str, message: str, write: Write
) -> None:
    text = SMALL.replace("payload: payload", f"payload: payload, payload_message: {written}")
    envelope = load_pipeline(write(text)).envelope
    assert isinstance(envelope, Wrapper)
    assert envelope.payload_messages.for_route("chess") == message
    assert WRAPPER.payload_messages.for_route("chess") is None


def test_pipeline_file_may_have_yaml_aliases_and_comments(write: Write) -> None:
    path = write(SMALL.replace("name: games", "name: &n games # why").replace("[games]", "[*n]"))
    assert isinstance(source := load_pipeline(path).source, Kafka)
    assert source.topics == ("games",)


def test_pipeline_is_frozen() -> None:
    pipeline = build()
    with pytest.raises(ValidationError, match="frozen"):
        pipeline.__setattr__("name", "other")


def test_pipeline_survives_pickling(write: Write) -> None:
    pipeline = load_pipeline(write(WHOLE))
    copy = pickle.loads(pickle.dumps(pipeline))
    assert copy == pipeline
    assert copy.file == pipeline.file


def test_invalid_pipeline_built_in_python_raises_without_a_file() -> None:
    with pytest.raises(PipelineFileError) as raised:
        build(trigger=10, silver="silver", zebra=1, source=Confluent())
    assert isinstance(raised.value, InvalidPipeline)
    assert raised.value.where is None
    assert [each.code for each in raised.value.findings] == [
        "wrong-type",
        "wrong-type",
        "bad-template",
        "unknown-key",
    ]
    assert (
        raised.value.message == "`source` needs one of `Kafka`, `Delta`, `Files`, not a `Confluent`"
    )


def test_invalid_part_built_in_python_names_the_part() -> None:
    with pytest.raises(InvalidPipeline, match="`Kafka` needs exactly one of `topics`, `pattern`"):
        Kafka(servers="localhost:9092")
    anything: Any = {"servers": "localhost:9092", "topicz": ["games"]}
    with pytest.raises(InvalidPipeline) as raised:
        Kafka(**anything)
    assert raised.value.hint == "did you mean `topics`?"
    assert pickle.loads(pickle.dumps(raised.value)).findings == raised.value.findings


def test_pipeline_package_imports_nothing_heavy() -> None:
    heavy = "pyspark pyarrow deltalake confluent_kafka pandas numpy"
    script = (
        f"import headgate.config, sys; print(*[m for m in {heavy.split()} if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == ""
