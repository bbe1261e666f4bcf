from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from headgate.config import (
    Duration,
    Predict,
    PredictTo,
    Train,
    check_pipeline,
    load_pipeline,
    pipeline_json_schema,
)
from tests.config.test_broken_change_files import GOOD as CHANGES
from tests.config.test_broken_files import GOOD as RECORDS

Write = Callable[[str], Path]

FEATURES = "SELECT count(*) AS orders FROM orders"
LABEL = "SELECT store_id, at, known_at, label FROM truths"
PREDICT = f"""\
predict:
  wait_times:
    features: {FEATURES}
    model: models:/pizza_wait@serving
    key: store_id
    time: event_time
    window: 4 hours
    every: 2 seconds
    fallback: SELECT store_id, wait_time FROM waits
    to: {{table: waits, topic: waits-avro, field: wait_time}}
train:
  wait_times: {{label: "{LABEL}", every: 1 day, promote: never}}
"""
SHORT = "predict:\n  waits: {features: SELECT count(*) AS n FROM orders, key: id, window: 1h"
LINE = RECORDS.count("\n") + 1


def test_file_declares_predictions_and_their_training(write: Write) -> None:
    pipeline = load_pipeline(write(RECORDS + PREDICT))
    assert pipeline.predict == {
        "wait_times": Predict(
            features=FEATURES,
            model="models:/pizza_wait@serving",
            key="store_id",
            time="event_time",
            window=Duration(hours=4),
            every=Duration(seconds=2),
            fallback="SELECT store_id, wait_time FROM waits",
            to=PredictTo(table="waits", topic="waits-avro", field="wait_time"),
        )
    }
    assert pipeline.train == {
        "wait_times": Train(label=LABEL, every=Duration(days=1), promote="never")
    }
    assert pipeline.prediction_tables == {"wait_times": "waits"}


def test_table_and_model_default_to_the_name(write: Write) -> None:
    pipeline = load_pipeline(write(f"{RECORDS}{SHORT}}}\n"))
    assert pipeline.prediction_tables == {"waits": "waits"}
    assert pipeline.model_uri("waits") == "models:/games-waits@serving"
    assert pipeline.predict["waits"].to.topic is None


def test_sql_is_read_from_a_file_beside_the_pipeline(write: Write, tmp_path: Path) -> None:
    (tmp_path / "features.sql").write_text(f"{FEATURES}\n")
    added = PREDICT.replace(FEATURES, "features.sql")
    pipeline = load_pipeline(write(RECORDS + added))
    assert pipeline.predict["wait_times"].features == f"{FEATURES}\n"


def test_broken_sql_file_is_found_with_its_own_line(write: Write, tmp_path: Path) -> None:
    (tmp_path / "features.sql").write_text("SELECT count(*) AS n\nFORM orders\n")
    [finding] = check_pipeline(write(RECORDS + PREDICT.replace(FEATURES, "features.sql")))
    assert (finding.code, finding.line) == ("bad-sql", LINE + 2)
    assert "`features.sql:2:1`" in finding.message
    assert finding.hint == "did you mean `FROM`?"


BROKEN = {
    "missing file": (PREDICT.replace(FEATURES, "none.sql"), "bad-value", 2, "No such file"),
    "broken SQL": (PREDICT.replace("FROM orders", "FORM orders"), "bad-sql", 2, "`FORM`"),
    "push query": (PREDICT.replace(" orders\n", " orders EMIT CHANGES\n"), "bad-sql", 2, "EMIT"),
    "no table": (PREDICT.replace(" FROM waits\n", "\n"), "bad-sql", 8, "reads no table"),
    "no window": (PREDICT.replace("    window: 4 hours\n", ""), "missing-key", 1, "`window"),
    "broken window": (PREDICT.replace("4 hours", "4 moons"), "bad-value", 6, "not a duration"),
    "name": (PREDICT.replace("  wait_times:", "  Wait:", 1), "bad-value", 1, "lowercase"),
    "template": (f"{SHORT}}}\n".replace("waits", "a_{route}"), "bad-template", 1, "placeholders"),
    "model": (PREDICT.replace("models:/pizza_wait@", "pizza@"), "bad-value", 3, "models:/NAME"),
    "empty key": (PREDICT.replace("key: store_id", "key: ''"), "bad-value", 4, "column"),
    "topic": (PREDICT.replace("waits-avro", "no/topic"), "bad-value", 9, "topic names"),
    "field without a topic": (
        PREDICT.replace("topic: waits-avro, ", ""), "bad-value", 9, "`topic`",
    ),
    "table of the ledger": (
        PREDICT.replace("table: waits", "table: ledger"), "bad-value", 9, "`ledger`",
    ),
    "table that may land": (
        PREDICT.replace("table: waits", "table: silver_waits"), "bad-value", 9, "`silver`",
    ),
    "table of gold": (
        f"{SHORT}}}\ngold: {{waits: SELECT count(*) AS n FROM silver}}\n", "bad-value", 1,
        "gold.waits",
    ),
    "mistyped promotion": (PREDICT.replace("never", "allways"), "bad-choice", 11, "when_better"),
    "mistyped key": (PREDICT.replace("every: 2", "evry: 2"), "unknown-key", 7, "`every`?"),
    "training of something else": (
        PREDICT.replace("  wait_times: {label", "  wait_time: {label"), "bad-value", 11,
        "did you mean `wait_times`?",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BROKEN.values(), ids=BROKEN)
def test_broken_declaration_is_found_at_its_line(
    case: tuple[str, str, int, str], write: Write
) -> None:
    added, code, line, word = case
    [finding] = check_pipeline(write(RECORDS + added))
    assert (finding.code, finding.line) == (code, LINE + line), finding
    assert word in f"{finding.message} {finding.hint}"


def test_predictions_need_records(write: Write) -> None:
    [finding] = check_pipeline(write(f"{CHANGES}{SHORT}}}\n"))
    assert finding.code == "unknown-key"
    assert "streams of records" in f"{finding.hint}"


def test_topic_needs_a_kafka_source(write: Write) -> None:
    kafka = RECORDS[RECORDS.index("  kafka:") : RECORDS.index("registry:")]
    records = RECORDS.replace(kafka, "  delta: {path: ./inbox}\n")
    [finding] = check_pipeline(write(records + PREDICT))
    assert finding.code == "bad-value"
    assert "brokers of a Kafka source" in f"{finding.hint}"


def test_json_schema_has_the_keys_of_predictions() -> None:
    definitions = pipeline_json_schema()["$defs"]
    for model in (Predict, PredictTo, Train):
        assert set(definitions[model.__name__]["properties"]) == set(model.model_fields)
