"""Tests that every committer passes; a subclass per committer provides the fixture."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from headgate.lake.commit import (
    Commit,
    Committer,
    Mark,
    MergeCommit,
    MergeRule,
    commit_rows,
)
from headgate.lake.staged import StagedFile
from headgate.lake.tables import CommitConflict, TableError
from headgate.schema.field_metadata import (
    field_number,
    is_required,
    keep_apart,
    kept_apart_from,
    with_field_metadata,
)
from tests.lake.staged import rows_in, staged

APP = "headgate:games"
POINT = pa.struct([("x", pa.int32())])
POINT_Y = pa.struct([("x", pa.int32()), ("y", pa.string())])


WIDENED = {
    "int": ((-(2**31), pa.int32()), (2**40, pa.int64())),
    "float": ((0.5, pa.float32()), (1e300, pa.float64())),
    "decimal": (
        (Decimal("1.25"), pa.decimal128(5, 2)),
        (Decimal("12345.6789"), pa.decimal128(9, 4)),
    ),
    "unsigned": ((2**63 - 1, pa.int64()), (Decimal(2**64 - 1), pa.decimal128(20, 0))),
    "struct": (
        ({"x": 1}, POINT),
        ({"x": 2**40, "y": "b"}, pa.struct([("x", pa.int64()), ("y", pa.string())])),
    ),
    "list": (([1, None], pa.list_(pa.int32())), ([2**40], pa.list_(pa.int64()))),
}
"""Columns with a value and a type before and after they are widened."""


def widened(number: int, after: bool) -> pa.Table:
    chosen = {name: values[after] for name, values in WIDENED.items()}
    columns = {name: pa.array([value], kind) for name, (value, kind) in chosen.items()}
    return pa.table({"n": pa.array([number], pa.int64()), **columns})


def commit(
    committer: Committer, version: int, *files: StagedFile, schema: pa.Schema | None = None
) -> int:
    columns = schema or pa.unify_schemas([file.schema for file in files])
    return committer.commit(Commit(files[0].table, columns, files, (Mark(APP, version),)))


def numbers(*values: int) -> pa.Table:
    return pa.table({"n": pa.array(values, pa.int64())})


class CommitterContract:
    """Subclass it as `Test…` and give it a fixture `committer` that writes to `lake`."""

    @pytest.fixture
    def lake(self, tmp_path: Path) -> Path:
        return tmp_path / "lake"

    @pytest.fixture
    def committer(self, lake: Path) -> Committer:
        raise NotImplementedError

    def test_missing_table_has_no_state(self, committer: Committer) -> None:
        assert committer.state("chess", APP) is None

    def test_folder_with_only_staged_files_is_not_a_table(
        self, lake: Path, committer: Committer
    ) -> None:
        staged(lake, "chess", numbers(1))
        assert committer.state("chess", APP) is None

    def test_table_is_created_with_rows_columns_and_mark(
        self, lake: Path, committer: Committer
    ) -> None:
        assert commit(committer, 5, staged(lake, "chess", numbers(1, 2))) == 0
        state = committer.state("chess", APP)
        assert state is not None
        assert (state.version, state.marked) == (0, 5)
        assert state.schema == numbers().schema
        assert rows_in(lake, "chess", "n") == [{"n": 1}, {"n": 2}]

    def test_rows_are_appended_and_the_mark_moves(self, lake: Path, committer: Committer) -> None:
        commit(committer, 0, staged(lake, "chess", numbers(1)))
        version = commit(committer, 3, staged(lake, "chess", numbers(2)))
        state = committer.state("chess", APP)
        assert state is not None
        assert (state.version, state.marked) == (version, 3)
        assert version > 0
        assert rows_in(lake, "chess", "n") == [{"n": 1}, {"n": 2}]

    def test_mark_is_that_of_the_pipeline(self, lake: Path, committer: Committer) -> None:
        commit(committer, 5, staged(lake, "chess", numbers(1)))
        state = committer.state("chess", "headgate:other")
        assert state is not None
        assert state.marked is None

    def test_several_files_are_committed_at_once(self, lake: Path, committer: Committer) -> None:
        files = [staged(lake, "chess", numbers(number)) for number in range(3)]
        commit(committer, 0, *files)
        assert rows_in(lake, "chess", "n") == [{"n": 0}, {"n": 1}, {"n": 2}]

    def test_new_column_is_null_in_older_rows(self, lake: Path, committer: Committer) -> None:
        commit(committer, 0, staged(lake, "chess", numbers(1)))
        wider = pa.table({"n": pa.array([2], pa.int64()), "name": ["b"]})
        commit(committer, 1, staged(lake, "chess", wider))
        commit(committer, 2, staged(lake, "chess", numbers(3)), schema=wider.schema)
        state = committer.state("chess", APP)
        assert state is not None
        assert state.schema == wider.schema
        assert rows_in(lake, "chess", "n") == [
            {"n": 1, "name": None},
            {"n": 2, "name": "b"},
            {"n": 3, "name": None},
        ]

    def test_column_that_no_file_has_can_be_added(self, lake: Path, committer: Committer) -> None:
        wider = pa.schema([("n", pa.int64()), ("_key", pa.binary())])
        commit(committer, 0, staged(lake, "chess", numbers(1)), schema=wider)
        assert rows_in(lake, "chess", "n") == [{"n": 1, "_key": None}]

    @pytest.mark.parametrize(
        ("before", "after", "old", "new", "read"),
        [
            (POINT, POINT_Y, {"x": 1}, {"x": 2, "y": "b"}, {"x": 1, "y": None}),
            (
                pa.list_(POINT),
                pa.list_(POINT_Y),
                [{"x": 1}],
                [{"x": 2, "y": "b"}],
                [{"x": 1, "y": None}],
            ),
            (
                pa.map_(pa.string(), POINT),
                pa.map_(pa.string(), POINT_Y),
                [("k", {"x": 1})],
                [("k", {"x": 2, "y": "b"})],
                [("k", {"x": 1, "y": None})],
            ),
        ],
        ids=["struct", "list", "map"],
    )
    def test_new_nested_field_is_null_in_older_rows(
        self,
        lake: Path,
        committer: Committer,
        before: pa.DataType,
        after: pa.DataType,
        old: object,
        new: object,
        read: object,
    ) -> None:
        def table(number: int, value: object, kind: pa.DataType) -> pa.Table:
            return pa.table({"n": pa.array([number], pa.int64()), "p": pa.array([value], kind)})

        commit(committer, 0, staged(lake, "chess", table(1, old, before)))
        commit(committer, 1, staged(lake, "chess", table(2, new, after)))
        state = committer.state("chess", APP)
        assert state is not None
        assert state.schema.field("p").type == after
        assert rows_in(lake, "chess", "n") == [{"n": 1, "p": read}, {"n": 2, "p": new}]

    def test_partitioned_table_has_its_values_from_the_commit(
        self, lake: Path, committer: Committer
    ) -> None:
        routes = ["chess", "a b/ü=%", "../..", "Чесс"]
        schema = pa.schema([("n", pa.int64()), ("route", pa.string())])
        for version, more in enumerate((0, 10)):
            files = [
                staged(lake, "bronze", numbers(more + at), partition={"route": route})
                for at, route in enumerate(routes)
            ]
            committer.commit(
                Commit(
                    "bronze", schema, tuple(files), (Mark(APP, version),), partition_by=("route",)
                )
            )
        table = DeltaTable(lake / "bronze")
        assert table.metadata().partition_columns == ["route"]
        assert rows_in(lake, "bronze", "n") == [
            {"n": more + at, "route": route} for more in (0, 10) for at, route in enumerate(routes)
        ]

    def test_columns_are_added_without_files_and_marks(
        self, lake: Path, committer: Committer
    ) -> None:
        commit(committer, 3, staged(lake, "chess", numbers(1)))
        wider = pa.schema([("n", pa.int64()), ("name", pa.string())])
        committer.commit(Commit("chess", wider, ()))
        state = committer.state("chess", APP)
        assert state is not None
        assert (state.marked, state.schema) == (3, wider)
        assert rows_in(lake, "chess", "n") == [{"n": 1, "name": None}]

    def test_commit_without_files_moves_the_mark(self, lake: Path, committer: Committer) -> None:
        commit(committer, 0, staged(lake, "chess", numbers(1)))
        committer.commit(Commit("chess", numbers().schema, (), (Mark(APP, 1),)))
        state = committer.state("chess", APP)
        assert state is not None
        assert state.marked == 1
        assert rows_in(lake, "chess", "n") == [{"n": 1}]

    def test_statistics_let_readers_skip(self, lake: Path, committer: Committer) -> None:
        commit(committer, 0, staged(lake, "chess", numbers(3, 7)))
        commit(committer, 1, staged(lake, "chess", numbers(10, 20, 30)))
        actions = pa.table(DeltaTable(lake / "chess").get_add_actions(flatten=True))
        found = actions.select(["num_records", "min.n", "max.n", "null_count.n"]).to_pylist()
        assert sorted(tuple(row.values()) for row in found) == [(2, 3, 7, 0), (3, 10, 30, 0)]

    def test_values_of_every_type_are_kept(self, lake: Path, committer: Committer) -> None:
        moment = datetime(2026, 1, 2, 3, 4, 5, 678901, UTC)
        rows = pa.table(
            {
                "n": pa.array([1, 2], pa.int64()),
                "bool": pa.array([True, None]),
                "int": pa.array([-(2**31), None], pa.int32()),
                "float": pa.array([0.5, None], pa.float32()),
                "double": pa.array([1e300, None], pa.float64()),
                "string": pa.array(["é\0\U0010ffff", None]),
                "binary": pa.array([b"\0\xff", None]),
                "date": pa.array([date(2026, 1, 2), None]),
                "decimal": pa.array([Decimal(2**64 - 1), None], pa.decimal128(20, 0)),
                "timestamp": pa.array([moment, None], pa.timestamp("us", "UTC")),
                "list": pa.array([[1, None], None], pa.list_(pa.int32())),
                "map": pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int64())),
                "struct": pa.array([{"x": 1, "y": "b"}, None], POINT_Y),
            }
        )
        commit(committer, 0, staged(lake, "chess", rows))
        assert rows_in(lake, "chess", "n") == rows.to_pylist()
        state = committer.state("chess", APP)
        assert state is not None
        assert state.schema == rows.schema

    def test_columns_are_widened_with_all_their_rows(
        self, lake: Path, committer: Committer
    ) -> None:
        before, after = widened(1, after=False), widened(3, after=True)
        commit(committer, 0, staged(lake, "chess", before))
        commit(committer, 1, staged(lake, "chess", numbers(2)), schema=before.schema)
        assert committer.can_rewrite("chess", 1 << 20)
        larger = staged(lake, "chess", after)
        committer.commit(Commit("chess", after.schema, (larger,), (Mark(APP, 2),), "rewrite"))
        commit(committer, 3, staged(lake, "chess", numbers(4)), schema=after.schema)
        state = committer.state("chess", APP)
        assert state is not None
        assert (state.marked, state.schema) == (3, after.schema)
        first, second, third, fourth = rows_in(lake, "chess", "n")
        assert first == {**before.to_pylist()[0], "struct": {"x": 1, "y": None}}
        assert third == after.to_pylist()[0]
        assert [second, fourth] == [{**dict.fromkeys(first), "n": number} for number in (2, 4)]

    def test_large_table_is_not_rewritten(self, lake: Path, committer: Committer) -> None:
        commit(committer, 0, staged(lake, "chess", numbers(1)))
        assert not committer.can_rewrite("chess", 10)

    def test_metadata_of_columns_is_kept(self, lake: Path, committer: Committer) -> None:
        number = with_field_metadata(pa.field("n", pa.int64()), 7, required=True)
        commit(committer, 0, staged(lake, "chess", numbers(1)), schema=pa.schema([number]))
        apart = keep_apart(pa.field("n__string", pa.string()), "n")
        both = pa.schema([number, apart])
        commit(committer, 1, staged(lake, "chess", numbers(2)), schema=both)
        state = committer.state("chess", APP)
        assert state is not None
        assert field_number(state.schema.field("n")) == 7
        assert is_required(state.schema.field("n"))
        assert kept_apart_from(state.schema.field("n__string")) == "n"

    def test_all_rows_and_columns_are_replaced(self, lake: Path, committer: Committer) -> None:
        commit_rows(committer, "chess", numbers(1, 2), Mark(APP, 0))
        others = pa.table({"name": ["a", "b"]})
        assert commit_rows(committer, "chess", others, Mark(APP, 1), mode="replace") == 1
        state = committer.state("chess", APP)
        assert state is not None
        assert (state.version, state.marked, state.schema) == (1, 1, others.schema)
        assert rows_in(lake, "chess", "name") == others.to_pylist()

    def test_rows_of_some_partitions_are_replaced(self, lake: Path, committer: Committer) -> None:
        values = ["a", "it's \\ `b`", "c"]
        schema = pa.schema([("n", pa.int64()), ("part", pa.string())])

        def put(more: int, *wanted: str, replaced: tuple[str, ...] = ()) -> None:
            files = [
                staged(lake, "t", numbers(more + values.index(one)), partition={"part": one})
                for one in wanted
            ]
            mark = (Mark(APP, more),)
            commit = Commit("t", schema, tuple(files), mark, "append", ("part",), replaced)
            committer.commit(commit)

        put(0, *values)
        put(10, values[1], replaced=tuple(values[:2]))
        assert rows_in(lake, "t", "n") == [{"n": 2, "part": "c"}, {"n": 11, "part": values[1]}]
        assert DeltaTable(lake / "t").version() == 1

    def test_a_commit_has_several_marks(self, lake: Path, committer: Committer) -> None:
        for version in (1, 2):
            marks = [Mark(f"source {name!r}", version) for name in ("a", "b")]
            commit_rows(committer, "chess", numbers(version), *marks)
        states = [committer.state("chess", f"source {name!r}") for name in ("a", "b", "c")]
        assert [state and (state.version, state.marked) for state in states] == [
            (1, 2),
            (1, 2),
            (1, None),
        ]
        assert rows_in(lake, "chess", "n") == [{"n": 1}, {"n": 2}]

    def test_rows_of_an_older_version_are_not_committed(
        self, lake: Path, committer: Committer
    ) -> None:
        commit_rows(committer, "chess", numbers(1))
        commit_rows(committer, "chess", numbers(2))
        with pytest.raises(CommitConflict):
            commit_rows(committer, "chess", numbers(3), mode="replace", based_on=0)
        commit_rows(committer, "chess", numbers(4), mode="replace", based_on=1)
        assert rows_in(lake, "chess", "n") == [{"n": 4}]

    def test_new_table_is_described_and_never_one_that_exists(
        self, lake: Path, committer: Committer
    ) -> None:
        about = 'It\'s a "table"'
        commit = Commit(
            "chess",
            numbers().schema,
            (staged(lake, "chess", numbers(1)),),
            mode="create",
            description=about,
            properties={"delta.dataSkippingStatsColumns": "n"},
        )
        committer.commit(commit)
        metadata = DeltaTable(lake / "chess").metadata()
        assert metadata.description == about
        assert metadata.configuration["delta.dataSkippingStatsColumns"] == "n"
        with pytest.raises(TableError, match="already exists"):
            commit_rows(committer, "chess", numbers(2), mode="create")
        assert rows_in(lake, "chess", "n") == [{"n": 1}]

    def test_changes_are_merged(self, lake: Path, committer: Committer) -> None:
        def rows(*values: tuple[int, str, bool | None]) -> pa.Table:
            keys, names, gone = zip(*values, strict=True)
            columns = {'the"key"': pa.array(keys, pa.int64()), "name": pa.array(names)}
            flag = {} if None in gone else {"_gone": pa.array(gone)}
            return pa.table({**columns, **flag})

        rule = MergeRule(('the"key"',), newer="name", deleted="_gone")
        commit_rows(committer, "t", rows((1, "a", None), (2, "m", None), (3, "c", None)))
        changes = rows(
            (1, "b", True), (2, "k", False), (3, "d", False), (4, "e", False), (5, "f", True)
        )
        merged = committer.merge(MergeCommit("t", changes, rule, (Mark(APP, 7),)))
        assert (merged.inserted, merged.updated, merged.deleted) == (1, 1, 1)
        assert (
            rows_in(lake, "t", "name")
            == rows((3, "d", None), (4, "e", None), (2, "m", None)).to_pylist()
        )
        state = committer.state("t", APP)
        assert state is not None
        assert (state.version, state.marked) == (merged.version, 7)

        # Without a change there is nothing to commit but the mark.
        merged = committer.merge(MergeCommit("t", changes, rule, (Mark(APP, 8),)))
        assert (merged.inserted, merged.updated, merged.deleted) == (0, 0, 0)
        state = committer.state("t", APP)
        assert state is not None
        assert state.marked == 8

    def test_some_columns_of_matched_rows_are_set(self, lake: Path, committer: Committer) -> None:
        both = pa.table({"n": pa.array([1, 2], pa.int64()), "a": ["x", "x"], "b": ["x", None]})
        commit_rows(committer, "t", both)
        rule = MergeRule(("n",), only=("b", "x"), set=("a", "b"), inserts=False)
        changes = pa.table(
            {
                "n": pa.array([1, 2, 3], pa.int64()),
                "a": ["y", "y", "y"],
                "b": pa.nulls(3, pa.string()),
            }
        )
        merged = committer.merge(MergeCommit("t", changes, rule))
        assert (merged.inserted, merged.updated, merged.deleted) == (0, 1, 0)
        assert rows_in(lake, "t", "n") == [
            {"n": 1, "a": "y", "b": None},
            {"n": 2, "a": "x", "b": None},
        ]

    def test_keys_of_several_columns_may_be_null(self, lake: Path, committer: Committer) -> None:
        def rows(*values: tuple[str | None, int | None, int]) -> pa.Table:
            columns = zip(*values, strict=True)
            types = pa.string(), pa.int64(), pa.int64()
            return pa.table(
                [pa.array(one, kind) for one, kind in zip(columns, types, strict=True)],
                names=["a", "b", "n"],
            )

        commit_rows(committer, "t", rows((None, 1, 0), ("x", None, 0), (None, None, 0)))
        changes = rows((None, 1, 1), ("x", 1, 2), ("x", None, 3), ("y", None, 4))
        merged = committer.merge(MergeCommit("t", changes, MergeRule(("a", "b"))))
        assert (merged.inserted, merged.updated, merged.deleted) == (2, 2, 0)
        wanted = rows((None, None, 0), *zip(*changes.to_pydict().values(), strict=True))
        assert rows_in(lake, "t", "n") == wanted.to_pylist()

    def test_required_marks_fence_a_commit(self, lake: Path, committer: Committer) -> None:
        def fenced(number: int, required: int | None) -> Commit:
            file = staged(lake, "t", numbers(number))
            marks = (Mark(APP, number), Mark(f"{APP}:run", 1))
            return Commit("t", file.schema, (file,), marks, required_marks={APP: required})

        committer.commit(fenced(1, None))
        committer.commit(fenced(2, 1))
        for required in (None, 1, 3):
            with pytest.raises(CommitConflict):
                committer.commit(fenced(3, required))
        assert [row["n"] for row in rows_in(lake, "t", "n")] == [1, 2]
        state = committer.state("t", f"{APP}:run")
        assert state is not None
        assert state.marked == 1

    def test_compaction_keeps_rows_and_marks(self, lake: Path, committer: Committer) -> None:
        for number in range(4):
            commit(committer, number, staged(lake, "t", numbers(number)))
        done = committer.compact("t", 1 << 20)
        assert (done.files, done.into) == (4, 1)
        assert done.bytes > 0
        assert len(DeltaTable(lake / "t").file_uris()) == 1
        assert [row["n"] for row in rows_in(lake, "t", "n")] == [0, 1, 2, 3]
        state = committer.state("t", APP)
        assert state is not None
        assert state.marked == 3
        commit(committer, 4, staged(lake, "t", numbers(4)))
        assert [row["n"] for row in rows_in(lake, "t", "n")] == [0, 1, 2, 3, 4]
        assert committer.compact("missing", 1 << 20).files == 0

    def test_few_files_are_not_compacted(self, lake: Path, committer: Committer) -> None:
        for number in range(4):
            commit(committer, number, staged(lake, "t", numbers(number)))
        assert committer.compact("t", 1 << 20, fewest=5).files == 0
        assert len(DeltaTable(lake / "t").file_uris()) == 4
