"""Tables with constraints and features of other writers: Spark writes them, and enforces them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from headgate.config import Contract
from headgate.engine.land_table import BatchMark, TableLanded, TablePending, land_table
from headgate.engine.plan import TableShape
from headgate.lake.choose_committer import choose_committer
from headgate.lake.commit import (
    Commit,
    Committer,
    Mark,
    MergeCommit,
    MergeRule,
    commit_rows,
)
from headgate.lake.ledger import Pending
from headgate.lake.staged_files import is_staged
from headgate.lake.tables import TableError
from headgate.schema.changes import TableHistory
from tests.lake.committer_contract import APP, numbers
from tests.lake.staged import staged
from tests.rounds import some

CONSTRAINTS = {
    "check": "n BIGINT; ALTER TABLE {table} ADD CONSTRAINT positive CHECK (n > 0)",
    "check in writer version 3": "n BIGINT TBLPROPERTIES"
    " ('delta.minReaderVersion'='1', 'delta.minWriterVersion'='3');"
    " ALTER TABLE {table} ADD CONSTRAINT positive CHECK (n > 0)",
    "not null": "n BIGINT, id BIGINT NOT NULL",
    "generated": "n BIGINT, next BIGINT GENERATED ALWAYS AS (n + 1)",
    "identity": "n BIGINT, id BIGINT GENERATED ALWAYS AS IDENTITY",
}
FEATURES = {
    "columnMapping": "n BIGINT TBLPROPERTIES ('delta.columnMapping.mode'='name')",
    "column mapping in writer version 5": "n BIGINT TBLPROPERTIES"
    " ('delta.columnMapping.mode'='name',"
    " 'delta.minReaderVersion'='2', 'delta.minWriterVersion'='5')",
    "allowColumnDefaults": "n BIGINT, c BIGINT DEFAULT 7 TBLPROPERTIES"
    " ('delta.feature.allowColumnDefaults'='supported')",
}


def create(spark: SparkSession, lake: Path, columns: str) -> None:
    """Create the table `t`: columns, what follows them, and further statements."""
    table = f"delta.`{lake}/t`"
    first, *others = columns.split(";")
    for after in (" TBLPROPERTIES", " CLUSTER BY"):
        if after in first:
            first, rest = first.split(after, 1)
            spark.sql(f"CREATE TABLE {table} ({first}) USING delta{after}{rest}")
            break
    else:
        spark.sql(f"CREATE TABLE {table} ({first}) USING delta")
    for statement in others:
        spark.sql(statement.format(table=table))


def rows(spark: SparkSession, lake: Path) -> list[dict[str, Any]]:
    found = spark.read.format("delta").load(f"{lake}/t").orderBy("n").collect()
    return [row.asDict() for row in found]


def engines(lake: Path) -> list[str]:
    """Return the engine of each commit since the table was created."""
    logs = sorted((lake / "t" / "_delta_log").glob("*.json"))
    infos = [
        json.loads(line)["commitInfo"]
        for log in logs
        for line in log.read_text().splitlines()
        if '"commitInfo"' in line
    ]
    return [info["engineInfo"].split("/")[0] for info in infos]


def land(
    committer: Committer, lake: Path, version: int, *values: int, waiting: tuple[Pending, ...] = ()
) -> TableLanded | TablePending:
    files = [staged(lake, "t", numbers(*values))] if values else []
    return land_table(
        committer,
        str(lake),
        "t",
        TableShape(pa.schema([])),
        files,
        waiting,
        BatchMark(Mark(APP, version)),
        TableHistory(),
        Contract(),
    )


@pytest.fixture
def committer(spark: SparkSession, tmp_path: Path) -> Committer:
    return choose_committer("auto", lambda: spark, str(tmp_path))


@pytest.mark.parametrize(
    "constraint", some(["check", "check in writer version 3", "not null"], "check")
)
def test_rows_that_violate_a_constraint_are_pending_with_the_reason(
    spark: SparkSession, committer: Committer, tmp_path: Path, constraint: str
) -> None:
    create(spark, tmp_path, CONSTRAINTS[constraint])
    before = len(engines(tmp_path))
    pending = land(committer, tmp_path, 0, -1)
    assert isinstance(pending, TablePending)
    assert "violated" in pending.error or "CHECK constraint" in pending.error
    assert all(is_staged(str(tmp_path), one.file) for one in pending.files)
    assert rows(spark, tmp_path) == []
    assert len(engines(tmp_path)) == before

    if "check" in constraint:
        spark.sql(f"ALTER TABLE delta.`{tmp_path}/t` DROP CONSTRAINT positive")
    else:
        spark.sql(f"ALTER TABLE delta.`{tmp_path}/t` ALTER COLUMN id DROP NOT NULL")
    assert isinstance(land(committer, tmp_path, 1, 5, waiting=pending.files), TableLanded)
    assert [row["n"] for row in rows(spark, tmp_path)] == [-1, 5]


@pytest.mark.soak
def test_rows_that_keep_a_constraint_land(
    spark: SparkSession, committer: Committer, tmp_path: Path
) -> None:
    create(spark, tmp_path, CONSTRAINTS["check"])
    for version in range(2):
        assert isinstance(land(committer, tmp_path, version, version + 1), TableLanded)
    assert rows(spark, tmp_path) == [{"n": 1}, {"n": 2}]
    assert set(engines(tmp_path)) == {"Apache-Spark"}


def test_delta_rs_alone_leaves_the_files_pending(spark: SparkSession, tmp_path: Path) -> None:
    create(spark, tmp_path, CONSTRAINTS["generated"])
    alone = choose_committer("delta-rs", lambda: spark, str(tmp_path))
    pending = land(alone, tmp_path, 0, 1)
    assert isinstance(pending, TablePending)
    assert "the generated column next; `commit: auto` uses Spark" in pending.error
    assert rows(spark, tmp_path) == []


def test_generated_column_that_records_do_not_have_is_computed(
    spark: SparkSession, committer: Committer, tmp_path: Path
) -> None:
    create(spark, tmp_path, CONSTRAINTS["generated"])
    assert isinstance(land(committer, tmp_path, 0, 5), TableLanded)
    assert rows(spark, tmp_path) == [{"n": 5, "next": 6}]


@pytest.mark.soak
def test_identity_column_is_computed(
    spark: SparkSession, committer: Committer, tmp_path: Path
) -> None:
    create(spark, tmp_path, CONSTRAINTS["identity"])
    assert isinstance(land(committer, tmp_path, 0, 5, 6), TableLanded)
    assert isinstance(land(committer, tmp_path, 1, 7), TableLanded)
    ids = [row["id"] for row in rows(spark, tmp_path)]
    assert len({*ids} - {None}) == 3


@pytest.mark.soak
def test_generated_column_that_records_have_is_checked(
    spark: SparkSession, committer: Committer, tmp_path: Path
) -> None:
    create(spark, tmp_path, CONSTRAINTS["generated"])
    columns = pa.schema([("n", pa.int64()), ("next", pa.int64())])

    def put(*values: int) -> None:
        file = staged(tmp_path, "t", pa.table([[one] for one in values], schema=columns))
        committer.commit(Commit("t", columns, (file,), (Mark(APP, values[0]),)))

    put(1, 2)
    with pytest.raises(TableError):
        put(2, 99)
    assert rows(spark, tmp_path) == [{"n": 1, "next": 2}]


@pytest.mark.parametrize("feature", some(FEATURES, "columnMapping"))
def test_spark_writes_features_that_delta_rs_lacks(
    spark: SparkSession, committer: Committer, tmp_path: Path, feature: str
) -> None:
    create(spark, tmp_path, FEATURES[feature])
    assert committer.engine("t") == "spark"
    assert isinstance(land(committer, tmp_path, 0, 5), TableLanded)
    assert [row["n"] for row in rows(spark, tmp_path)] == [5]
    assert {row.get("c", 7) for row in rows(spark, tmp_path)} == {7}
    assert set(engines(tmp_path)) == {"Apache-Spark"}


@pytest.mark.soak
def test_table_with_constraints_is_merged_and_replaced_by_spark(
    spark: SparkSession, committer: Committer, tmp_path: Path
) -> None:
    create(
        spark,
        tmp_path,
        "n BIGINT, next BIGINT GENERATED ALWAYS AS (n + 1);"
        " ALTER TABLE {table} ADD CONSTRAINT positive CHECK (n > 0)",
    )
    commit_rows(committer, "t", numbers(1, 2), Mark(APP, 0))
    rule = MergeRule(("n",))
    committer.merge(MergeCommit("t", numbers(2, 3), rule, (Mark(APP, 1),)))
    assert rows(spark, tmp_path) == [{"n": n, "next": n + 1} for n in (1, 2, 3)]
    with pytest.raises(TableError, match="positive"):
        committer.merge(MergeCommit("t", numbers(-3), rule, (Mark(APP, 2),)))
    commit_rows(committer, "t", numbers(7), Mark(APP, 2), mode="replace")
    assert rows(spark, tmp_path) == [{"n": 7, "next": 8}]
    with pytest.raises(TableError):
        commit_rows(committer, "t", numbers(-7), Mark(APP, 3), mode="replace")
    commit_rows(committer, "t", numbers(8), Mark("a", 1), Mark("b", 1), mode="replace")
    assert rows(spark, tmp_path) == [{"n": 8, "next": 9}]
    assert set(engines(tmp_path)) == {"Apache-Spark"}


@pytest.mark.parametrize("constraint", some(["check", "generated", "append only"]))
def test_columns_with_constraints_are_not_widened(
    spark: SparkSession, committer: Committer, tmp_path: Path, constraint: str
) -> None:
    columns = {
        "check": "n INT; ALTER TABLE {table} ADD CONSTRAINT positive CHECK (coalesce(n, 1) > 0)",
        "generated": "n INT, next INT GENERATED ALWAYS AS (n + 1)",
        "append only": "n INT TBLPROPERTIES ('delta.appendOnly'='true')",
    }
    create(spark, tmp_path, columns[constraint])
    assert not committer.can_rewrite("t", 1 << 30)
    landed = land(committer, tmp_path, 0, 2**40)
    assert isinstance(landed, TableLanded), landed.error
    assert DeltaTable(tmp_path / "t").schema().fields[0].type.type == "integer"
    (row,) = spark.read.format("delta").load(f"{tmp_path}/t").collect()
    assert 2**40 in row.asDict().values()
