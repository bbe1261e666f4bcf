"""Tables of Spark with features that only Kernel keeps in an append of staged files."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from headgate.lake import kernel as module
from headgate.lake import log
from headgate.lake.choose_committer import choose_committer
from headgate.lake.commit import Commit, Committer, Mark
from headgate.lake.kernel import KernelCommitter
from headgate.lake.log import LogEntry
from headgate.lake.parquet import stage_rows
from headgate.lake.staged import StagedFile
from headgate.lake.tables import CommitConflict, NotWritable
from tests.rounds import some

APP, RUN = "headgate:games", "headgate:games:run"

TABLES = {
    "row tracking": "n BIGINT, s STRING | TBLPROPERTIES ('delta.enableRowTracking'='true')",
    "in-commit timestamps": "n BIGINT, s STRING"
    " | TBLPROPERTIES ('delta.enableInCommitTimestamps'='true')",
    "clustering": "n BIGINT, s STRING | CLUSTER BY (n)",
    "type widening": "n INT, s STRING | TBLPROPERTIES ('delta.enableTypeWidening'='true')",
    "defaults": "n BIGINT, s STRING DEFAULT 'none'"
    " | TBLPROPERTIES ('delta.feature.allowColumnDefaults'='supported')",
    "domain metadata": "n BIGINT, s STRING"
    " | TBLPROPERTIES ('delta.feature.domainMetadata'='supported')",
    "partitions": "n BIGINT, s STRING, day DATE | PARTITIONED BY (day)"
    " TBLPROPERTIES ('delta.enableRowTracking'='true')",
    "all": "n BIGINT, s STRING DEFAULT 'none' | CLUSTER BY (n) TBLPROPERTIES ("
    "'delta.enableRowTracking'='true', 'delta.enableInCommitTimestamps'='true',"
    " 'delta.enableTypeWidening'='true', 'delta.feature.allowColumnDefaults'='supported',"
    " 'delta.enableDeletionVectors'='true', 'delta.enableChangeDataFeed'='true')",
}
NEEDS_SPARK = {
    "CHECK": "n BIGINT, s STRING | TBLPROPERTIES ('delta.constraints.positive'='n > 0',"
    " 'delta.enableRowTracking'='true')",
    "NOT NULL": "n BIGINT NOT NULL, s STRING | CLUSTER BY (n)",
    "generated": "n BIGINT, s STRING, next BIGINT GENERATED ALWAYS AS (n + 1) | CLUSTER BY (n)",
    "identity": "n BIGINT, s STRING, id BIGINT GENERATED ALWAYS AS IDENTITY",
    "default of a missing column": "n BIGINT, s STRING, c BIGINT DEFAULT 7"
    " | TBLPROPERTIES ('delta.feature.allowColumnDefaults'='supported')",
}


def create(spark: SparkSession, lake: str, definition: str, rows: bool = True) -> None:
    """Create the table `t`, with two rows."""
    columns, _, rest = definition.partition(" | ")
    spark.sql(f"CREATE TABLE delta.`{lake}/t` ({columns}) USING delta {rest}")
    if not rows:
        return
    day = ", DATE '2026-01-01'" if "day DATE" in definition else ""
    names = "n, s, day" if day else "n, s"
    spark.sql(f"INSERT INTO delta.`{lake}/t` ({names}) VALUES (1, 'a'{day}), (2, 'b'{day})")
    if "INT, s" in definition and "BIGINT" not in definition:
        spark.sql(f"ALTER TABLE delta.`{lake}/t` ALTER COLUMN n TYPE BIGINT")


def stage(lake: str, *values: int, day: str | None = None) -> StagedFile:
    rows = pa.table({"n": pa.array(values, pa.int64()), "s": [f"s{value}" for value in values]})
    return stage_rows(lake, "t", rows, partition=None if day is None else {"day": day})


def append(committer: Committer, lake: str, number: int, *values: int, **more: Any) -> int:
    state = committer.state("t", APP)
    assert state is not None
    file = stage(lake, *values, day=more.pop("day", None))
    marks = (Mark(APP, number), Mark(RUN, 1))
    required = {APP: state.marked}
    return committer.commit(
        Commit("t", state.schema, (file,), marks, required_marks=required, **more)
    )


def numbers(spark: SparkSession, lake: str) -> list[int]:
    return sorted(row.n for row in spark.sql(f"SELECT n FROM delta.`{lake}/t`").collect())


def entry(lake: str, version: int) -> LogEntry:
    return LogEntry.read(f"{lake}/t", version)


def info(made: LogEntry) -> Mapping[str, Any]:
    return next(action["commitInfo"] for action in made.actions if "commitInfo" in action)


@pytest.fixture
def lake(tmp_path: Path) -> str:
    return str(tmp_path)


@pytest.fixture
def committer(spark: SparkSession, lake: str) -> Committer:
    return choose_committer("auto", lambda: spark, lake)


@pytest.mark.parametrize("name", some(TABLES, "partitions", "all"))
def test_staged_files_are_added_and_spark_goes_on(
    spark: SparkSession, committer: Committer, lake: str, name: str
) -> None:
    create(spark, lake, TABLES[name])
    more = {"day": "2026-01-02"} if name == "partitions" else {}
    version = append(committer, lake, 5, 3, 4, **more)
    append(committer, lake, 6, 5, **more)
    made = entry(lake, version)
    assert info(made)["engineInfo"].startswith("Kernel-4.4.0/headgate")
    assert info(made)["isBlindAppend"] is True
    assert made.marks == {APP: 5, RUN: 1}
    assert json.loads(made.added[0]["stats"])["maxValues"] == {"n": 4, "s": "s4"}
    assert numbers(spark, lake) == [1, 2, 3, 4, 5]
    state = committer.state("t", APP)
    assert state is not None
    assert (state.version, state.marked, state.obstacle) == (version + 1, 6, None)

    spark.sql(f"DELETE FROM delta.`{lake}/t` WHERE n = 3")
    append(committer, lake, 7, 6, **more)
    spark.sql(f"OPTIMIZE delta.`{lake}/t`").collect()
    assert numbers(spark, lake) == [1, 2, 4, 5, 6]
    if more:
        days = spark.sql(f"SELECT DISTINCT day FROM delta.`{lake}/t` WHERE n > 3").collect()
        assert [row.day for row in days] == [date(2026, 1, 2)]


def test_rows_have_ids_and_commits_their_timestamps(
    spark: SparkSession, committer: Committer, lake: str
) -> None:
    create(spark, lake, TABLES["all"])
    first = append(committer, lake, 1, 3, 4)
    second = append(committer, lake, 2, 5)
    rows = spark.sql(
        "SELECT n, _metadata.row_id AS id, _metadata.row_commit_version AS version"
        f" FROM delta.`{lake}/t` ORDER BY n"
    ).collect()
    assert len({row.id for row in rows}) == 5
    assert [row.version for row in rows[2:]] == [first, first, second]
    times = [info(entry(lake, version))["inCommitTimestamp"] for version in range(second + 1)]
    assert times == sorted(set(times))


def test_checkpoints_are_written(spark: SparkSession, committer: Committer, lake: str) -> None:
    create(spark, lake, TABLES["row tracking"])
    spark.sql(f"ALTER TABLE delta.`{lake}/t` SET TBLPROPERTIES ('delta.checkpointInterval'='3')")
    for number in range(3):
        append(committer, lake, number, 3 + number)
    checkpoint = Path(lake, "t", "_delta_log", f"{3:020}.checkpoint.parquet")
    assert checkpoint.exists()
    assert numbers(spark, lake) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("name", some(NEEDS_SPARK, "CHECK", "default of a missing column"))
def test_what_has_to_be_checked_or_computed_is_left_to_spark(
    spark: SparkSession, lake: str, committer: Committer, name: str
) -> None:
    create(spark, lake, NEEDS_SPARK[name])
    alone = KernelCommitter(lambda: spark, lake)
    assert alone.can_append("t") == (name == "default of a missing column")
    file = stage(lake, 3)
    with pytest.raises(NotWritable):
        alone.commit(Commit("t", file.schema, (file,)))
    version = append(committer, lake, 1, 3)
    assert info(entry(lake, version))["engineInfo"].startswith("Apache-Spark")
    assert numbers(spark, lake) == [1, 2, 3]


def test_other_commits_than_appends_are_refused(spark: SparkSession, lake: str) -> None:
    create(spark, lake, TABLES["row tracking"])
    alone = KernelCommitter(lambda: spark, lake)
    file = stage(lake, 3)
    wider = pa.schema([*file.schema, pa.field("more", pa.string())])
    other = stage_rows(lake, "t", pa.table({"n": ["text"]}))
    parted = stage(lake, 3, day="2026-01-01")
    for refused in (
        Commit("t", file.schema, (file,), mode="replace"),
        Commit("t", file.schema, (file,), removed={"a.parquet": 1}),
        Commit("t", wider, (file,)),
        Commit("t", file.schema, (other,)),
        Commit("t", file.schema, (parted,)),
        Commit("missing", file.schema, (file,)),
    ):
        with pytest.raises(NotWritable):
            alone.commit(refused)
    assert numbers(spark, lake) == [1, 2]


def test_marks_are_required_and_never_lowered(
    spark: SparkSession, committer: Committer, lake: str
) -> None:
    create(spark, lake, TABLES["row tracking"])
    version = append(committer, lake, 5, 3)
    schema = stage(lake, 3).schema
    for refused in (
        Commit("t", schema, (stage(lake, 4),), (Mark(APP, 6),), required_marks={APP: 4}),
        Commit("t", schema, (stage(lake, 4),), (Mark(APP, 6),), required_marks={"other": 1}),
        Commit("t", schema, (stage(lake, 4),), (Mark(APP, 4),)),
        Commit("t", schema, (stage(lake, 4),), (Mark(RUN, 2), Mark(APP, 4))),
        Commit("t", schema, (stage(lake, 4),), based_on=version - 1),
    ):
        with pytest.raises(CommitConflict):
            committer.commit(refused)
    committer.commit(Commit("t", schema, (), (Mark(APP, 7),)))
    state = committer.state("t", APP)
    assert state is not None
    assert (state.version, state.marked) == (version + 1, 7)
    assert numbers(spark, lake) == [1, 2, 3]


@pytest.fixture
def before_the_entry(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Callable[[], object]]]:
    """Functions to call, one each time, just before Kernel's entry is written."""
    calls: list[Callable[[], object]] = []
    write_entry = log.write_entry

    def write(url: str, version: int, actions: Any) -> object:
        if calls:
            calls.pop(0)()
        return write_entry(url, version, actions)

    monkeypatch.setattr(module, "write_entry", write)
    yield calls
    assert not calls


def test_appends_of_others_are_followed(
    spark: SparkSession,
    committer: Committer,
    lake: str,
    before_the_entry: list[Callable[[], object]],
) -> None:
    create(spark, lake, TABLES["all"])
    insert = f"INSERT INTO delta.`{lake}/t` VALUES (10, 'other')"
    before_the_entry += [lambda: spark.sql(insert), lambda: spark.sql(insert)]
    append(committer, lake, 1, 3)
    assert numbers(spark, lake) == [1, 2, 3, 10, 10]
    ids = spark.sql(f"SELECT _metadata.row_id AS id FROM delta.`{lake}/t`").collect()
    assert len({row.id for row in ids}) == 5


@pytest.mark.parametrize(
    "statement",
    some(
        [
            "ALTER TABLE delta.`{lake}/t` ADD COLUMN more STRING",
            "ALTER TABLE delta.`{lake}/t` SET TBLPROPERTIES"
            " ('delta.enableInCommitTimestamps'='true')",
        ]
    ),
)
def test_new_columns_and_features_are_kept(
    spark: SparkSession,
    committer: Committer,
    lake: str,
    before_the_entry: list[Callable[[], object]],
    statement: str,
) -> None:
    create(spark, lake, TABLES["row tracking"])
    before_the_entry.append(lambda: spark.sql(statement.format(lake=lake)))
    version = append(committer, lake, 1, 3)
    assert ("inCommitTimestamp" in info(entry(lake, version))) == ("Timestamps" in statement)
    assert numbers(spark, lake) == [1, 2, 3]


def test_mark_of_another_run_is_a_conflict(
    spark: SparkSession,
    committer: Committer,
    lake: str,
    before_the_entry: list[Callable[[], object]],
) -> None:
    create(spark, lake, TABLES["row tracking"])
    file = stage(lake, 3)
    other = Commit("t", file.schema, (file,), (Mark(APP, 1),))
    before_the_entry.append(lambda: KernelCommitter(lambda: spark, lake).commit(other))
    with pytest.raises(CommitConflict):
        append(committer, lake, 1, 4)
    assert numbers(spark, lake) == [1, 2, 3]


def test_rows_that_were_read_must_not_have_changed(
    spark: SparkSession,
    committer: Committer,
    lake: str,
    before_the_entry: list[Callable[[], object]],
) -> None:
    create(spark, lake, TABLES["row tracking"])
    state = committer.state("t", APP)
    assert state is not None
    before_the_entry.append(lambda: spark.sql(f"INSERT INTO delta.`{lake}/t` VALUES (10, 'o')"))
    with pytest.raises(CommitConflict):
        append(committer, lake, 1, 3, based_on=state.version)
    assert numbers(spark, lake) == [1, 2, 10]
    version = append(committer, lake, 1, 3, based_on=state.version + 1)
    assert info(entry(lake, version))["isBlindAppend"] is False


def test_storage_that_fails_says_so(
    spark: SparkSession,
    committer: Committer,
    lake: str,
    before_the_entry: list[Callable[[], object]],
) -> None:
    create(spark, lake, TABLES["row tracking"])

    def fail() -> None:
        raise OSError("No space left on device")

    before_the_entry.append(fail)
    with pytest.raises(OSError, match="No space left on device"):
        append(committer, lake, 1, 3)
    assert numbers(spark, lake) == [1, 2]


def test_tables_are_appended_to_side_by_side(spark: SparkSession, tmp_path: Path) -> None:
    lakes = [f"{tmp_path}/{number}" for number in range(4)]
    for lake in lakes:
        create(spark, lake, TABLES["row tracking"])
    committers = [choose_committer("auto", lambda: spark, lake) for lake in lakes]
    with ThreadPoolExecutor(4) as pool:
        for number in range(3):
            made = [
                pool.submit(append, committer, lake, number, 3 + number)
                for committer, lake in zip(committers, lakes, strict=True)
            ]
            for version in made:
                version.result()
    assert [numbers(spark, lake) for lake in lakes] == [[1, 2, 3, 4, 5]] * 4


def test_statistics_are_those_of_the_file(
    spark: SparkSession, committer: Committer, lake: str
) -> None:
    """Kernel itself does not read whole seconds."""
    columns = "at TIMESTAMP, n BIGINT"
    create(spark, lake, f"{columns} | TBLPROPERTIES ('delta.enableRowTracking'='true')", rows=False)
    at = pa.array([datetime(2026, 1, 1, tzinfo=UTC)], pa.timestamp("us", "UTC"))
    file = stage_rows(lake, "t", pa.table({"at": at, "n": pa.array([1], pa.int64())}))
    version = committer.commit(Commit("t", file.schema, (file,), (Mark(APP, 1),)))
    made = entry(lake, version)
    assert info(made)["engineInfo"].startswith("Kernel")
    assert made.added[0]["stats"] == file.statistics
    assert numbers(spark, lake) == [1]
