from __future__ import annotations

import json
from pathlib import Path

import pytest

from headgate.inspect.check import find_mistakes
from headgate.registry.folder import FolderRegistry
from headgate.registry.registry import SchemaText
from tests.config.test_broken_files import GOOD

LINE = GOOD.count("\n") + 1
PREDICT = """\
predict:
  waits:
    features: SELECT count(*) AS orders FROM orders
    key: store_id
    window: 1 hour
    fallback: SELECT store_id, wait FROM waits
    to: {topic: waits}
"""
FIELDS = [{"name": "store_id", "type": "int"}, {"name": "wait", "type": "int"}]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A pipeline file beside a registry with the schema of the topic."""
    text = json.dumps({"type": "record", "name": "Waits", "fields": FIELDS})
    FolderRegistry(tmp_path / "schemas").register("waits-value", SchemaText("AVRO", text))
    path = tmp_path / "shop.yaml"
    path.write_text(GOOD + PREDICT)
    return path


def test_good_predictions_have_no_mistakes(file: Path) -> None:
    assert find_mistakes(file) == []


@pytest.mark.parametrize(
    ("old", "new", "code", "line", "word"),
    [
        ("count(*) AS orders", "now() AS orders", "bad-sql", 2, "`moment`"),
        ("wait FROM waits", "wait FROM waits ORDER BY wait", "bad-sql", 5, "ORDER BY"),
        ("topic: waits", "topic: others", "topic-unfit", 6, "no subject `others-value`"),
        ("key: store_id", "key: shop_id", "topic-unfit", 6, "no field `shop_id`"),
    ],
)
def test_mistake_is_found_at_its_line(
    file: Path, old: str, new: str, code: str, line: int, word: str
) -> None:
    file.write_text(GOOD + PREDICT.replace(old, new))
    (finding,) = find_mistakes(file)
    assert (finding.code, finding.line) == (code, LINE + line)
    assert word in f"{finding.message} {finding.hint}"


def test_mistake_in_a_sql_file_names_its_line(file: Path) -> None:
    (file.parent / "features.sql").write_text("SELECT\n  now() AS n FROM orders\n")
    query = "SELECT count(*) AS orders FROM orders"
    file.write_text(GOOD + PREDICT.replace(query, "features.sql"))
    (finding,) = find_mistakes(file)
    assert finding.line == LINE + 2
    assert "`features.sql:2:3`" in finding.message
