"""`headgate spark` without Spark: its settings, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Headgate
from tests.config.test_broken_files import GOOD

IN_S3 = GOOD.replace("./lake", "s3://bucket/lake") + (
    "storage: {region: eu, access_key: env:KEY, secret_key: env:SECRET}\n"
    "spark: {spark.sql.shuffle.partitions: 4}\n"
    "catalog: {name: games, in: 'thrift://a:9083, thrift://b:9083'}\n"
)


def test_printed_settings_have_the_catalog_and_only_references_to_secrets(
    headgate: Headgate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEY", "hunter1")
    monkeypatch.setenv("SECRET", "hunter2")
    (tmp_path / "games.yaml").write_text(IN_S3)
    printed = headgate("spark", "--print")
    assert (printed.code, printed.err) == (0, "")
    settings = dict(line.split(maxsplit=1) for line in printed.out.splitlines() if line[0] != "#")
    assert settings["spark.hadoop.hive.metastore.uris"] == "thrift://a:9083,thrift://b:9083"
    assert settings["spark.sql.catalogImplementation"] == "hive"
    assert settings["spark.hadoop.fs.s3a.endpoint.region"] == "eu"
    assert settings["spark.sql.shuffle.partitions"] == "4"
    assert settings["spark.sql.extensions"].endswith("DeltaSparkSessionExtension")
    assert "delta-spark" in settings["spark.jars"]
    assert "hadoop-aws" in settings["spark.jars"]
    comments = [line.split() for line in printed.out.splitlines() if line[0] == "#"]
    assert [(words[1], words[-1]) for words in comments] == [
        ("spark.hadoop.fs.s3a.access.key", "env:KEY"),
        ("spark.hadoop.fs.s3a.secret.key", "env:SECRET"),
    ]
    assert "hunter" not in printed.out


def test_metastore_that_does_not_answer_is_an_error_with_a_hint(
    headgate: Headgate, tmp_path: Path
) -> None:
    (tmp_path / "games.yaml").write_text(
        f"{GOOD}catalog: {{name: games, in: 'thrift://127.0.0.1:1'}}\n"
    )
    printed = headgate("spark", "--sql", "SELECT 1")
    assert printed.code == 1
    assert "the metastore at thrift://127.0.0.1:1 does not answer" in printed.err
    assert "[catalog-unavailable]" in printed.err
    assert "headgate up --catalog" in printed.err


@pytest.mark.parametrize("words", [["--print", "--sql", "SELECT 1"], ["--json"]])
def test_options_that_exclude_each_other(headgate: Headgate, words: list[str]) -> None:
    assert headgate("spark", *words).code == 2
