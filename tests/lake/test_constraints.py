from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from headgate.lake.choose_committer import AutoCommitter
from headgate.lake.commit import Commit, Mark, MergeCommit, MergeRule
from headgate.lake.constraints import Constraints
from headgate.lake.delta_rs import DeltaRsCommitter
from headgate.lake.tables import NotWritable, TableError
from tests.lake.staged import files_in, rows_in, staged

from .committer_contract import APP, commit, numbers
from .test_choose_committer import RecordingCommitter

CHECK = {"positive": "n > 0"}


def column(name: str, **metadata: Any) -> dict[str, Any]:
    return {"name": name, "type": "long", "nullable": True, "metadata": metadata}


def not_null(name: str) -> dict[str, Any]:
    return {**column(name), "nullable": False}


def struct(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "struct", "fields": list(fields)}


def inside(kind: dict[str, Any]) -> dict[str, Any]:
    return struct({**column("outer"), "type": kind})


@pytest.mark.parametrize(
    ("properties", "schema", "described"),
    [
        ({}, struct(column("n")), ""),
        ({"delta.appendOnly": "true"}, struct(column("n")), ""),
        (
            {"delta.constraints.positive": "n > 0", "delta.constraints.a": "n < 9"},
            struct(column("n")),
            "the CHECK constraint a, the CHECK constraint positive",
        ),
        ({}, struct(not_null("n")), "the NOT NULL column n"),
        ({}, inside(struct(not_null("n"))), "the NOT NULL column outer.n"),
        (
            {},
            inside({"type": "array", "elementType": struct(not_null("n"))}),
            "the NOT NULL column outer.n",
        ),
        (
            {},
            inside({"type": "map", "keyType": "long", "valueType": struct(not_null("n"))}),
            "the NOT NULL column outer.n",
        ),
        ({}, struct(column("n", **{"delta.invariants": "{}"})), "the invariant of column n"),
        (
            {},
            struct(column("d", **{"delta.generationExpression": "n"})),
            "the generated column d",
        ),
        ({}, struct(column("i", **{"delta.identity.start": "1"})), "the identity column i"),
        ({}, struct(column("c", CURRENT_DEFAULT="1")), "the default of column c"),
    ],
)
def test_constraints_are_those_in_force(
    properties: dict[str, str], schema: dict[str, Any], described: str
) -> None:
    constraints = Constraints.of(properties, schema)
    assert (str(constraints), bool(constraints)) == (described, bool(described))


def change_table(
    lake: Path,
    protocol: tuple[int, int],
    properties: dict[str, str] | None = None,
    *fields: dict[str, Any],
) -> None:
    """Let another writer change the table `chess`, with a protocol before there were features."""
    log = lake / "chess" / "_delta_log"
    actions = [json.loads(line) for line in (log / f"{0:020}.json").read_text().splitlines()]
    (metadata,) = [one["metaData"] for one in actions if "metaData" in one]
    metadata["configuration"] |= properties or {}
    if fields:
        metadata["schemaString"] = json.dumps(struct(*fields))
    reader, writer = protocol
    version = DeltaTable(lake / "chess").version() + 1
    changed = {"protocol": {"minReaderVersion": reader, "minWriterVersion": writer}}
    lines = [json.dumps(changed), json.dumps({"metaData": metadata})]
    (log / f"{version:020}.json").write_text("\n".join(lines))


MAPPED = {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "c1"}

CASES: dict[str, tuple[tuple[int, int], dict[str, str], tuple[dict[str, Any], ...]]] = {
    "the invariant of column n": (
        (1, 2),
        {},
        (column("n", **{"delta.invariants": '{"expression": {"expression": "n > 0"}}'}),),
    ),
    "the NOT NULL column n": ((1, 2), {}, (not_null("n"),)),
    "the CHECK constraint positive": ((1, 3), {"delta.constraints.positive": "n > 0"}, ()),
    "the generated column d": (
        (1, 4),
        {},
        (column("n"), column("d", **{"delta.generationExpression": "n + 1"})),
    ),
    "column mapping": ((2, 5), {"delta.columnMapping.mode": "name"}, (column("n", **MAPPED),)),
    "the identity column i": (
        (1, 6),
        {},
        (column("n"), column("i", **{"delta.identity.start": 1, "delta.identity.step": 1})),
    ),
}
"""Obstacles in tables before writer version 7, which have no features."""


@pytest.mark.parametrize("obstacle", CASES)
def test_delta_rs_does_not_add_files_to_a_table_with_constraints(
    tmp_path: Path, obstacle: str
) -> None:
    committer = DeltaRsCommitter(str(tmp_path))
    commit(committer, 0, staged(tmp_path, "chess", numbers(1)))
    protocol, properties, fields = CASES[obstacle]
    change_table(tmp_path, protocol, properties, *fields)
    assert not committer.can_write("chess")
    with pytest.raises(NotWritable, match=obstacle):
        commit(committer, 1, staged(tmp_path, "chess", numbers(-1)))
    with pytest.raises(NotWritable, match=obstacle):
        committer.merge(MergeCommit("chess", numbers(-1), MergeRule(("n",))))
    assert DeltaTable(tmp_path / "chess").version() == 1
    assert len(files_in(tmp_path, "chess")) == 2  # the second stays for Spark


@pytest.mark.parametrize("obstacle", CASES)
def test_spark_commits_to_a_table_with_constraints(tmp_path: Path, obstacle: str) -> None:
    spark = RecordingCommitter()
    committer = AutoCommitter(DeltaRsCommitter(str(tmp_path)), spark)
    commit(committer, 0, staged(tmp_path, "chess", numbers(1)))
    protocol, properties, fields = CASES[obstacle]
    change_table(tmp_path, protocol, properties, *fields)
    committer.state("chess", APP)
    assert commit(committer, 1, staged(tmp_path, "chess", numbers(-1))) == 7
    assert committer.engine("chess") == "spark"
    assert spark.calls == ["state of chess", "commit to chess"]


def test_constraint_added_while_running_is_noticed_at_the_next_commit(tmp_path: Path) -> None:
    spark = RecordingCommitter()
    committer = AutoCommitter(DeltaRsCommitter(str(tmp_path)), spark)
    for version in range(3):
        committer.state("chess", APP)
        commit(committer, version, staged(tmp_path, "chess", numbers(version + 1)))
    DeltaTable(tmp_path / "chess").alter.add_constraint(CHECK)
    committer.state("chess", APP)
    assert commit(committer, 3, staged(tmp_path, "chess", numbers(-1))) == 7
    assert spark.calls == ["state of chess", "commit to chess"]
    DeltaTable(tmp_path / "chess").alter.drop_constraint("positive")
    committer.state("chess", APP)
    commit(committer, 4, staged(tmp_path, "chess", numbers(-1)))
    assert rows_in(tmp_path, "chess", "n") == [{"n": n} for n in (-1, 1, 2, 3)]


def test_constraint_added_between_reading_and_committing_is_noticed(tmp_path: Path) -> None:
    committer = DeltaRsCommitter(str(tmp_path))
    commit(committer, 0, staged(tmp_path, "chess", numbers(1)))
    assert committer.state("chess", APP) is not None
    DeltaTable(tmp_path / "chess").alter.add_constraint(CHECK)
    with pytest.raises(TableError):
        commit(committer, 1, staged(tmp_path, "chess", numbers(-1)))
    with pytest.raises(NotWritable):
        commit(committer, 1, staged(tmp_path, "chess", numbers(-1)))
    assert rows_in(tmp_path, "chess", "n") == [{"n": 1}]


def test_constraint_added_with_a_new_column_is_noticed(tmp_path: Path) -> None:
    committer = DeltaRsCommitter(str(tmp_path))
    commit(committer, 0, staged(tmp_path, "chess", numbers(1)))
    assert committer.state("chess", APP) is not None
    DeltaTable(tmp_path / "chess").alter.add_constraint(CHECK)
    wider = pa.table({"n": pa.array([-1], pa.int64()), "name": ["b"]})
    with pytest.raises(TableError):
        commit(committer, 1, staged(tmp_path, "chess", wider))
    assert rows_in(tmp_path, "chess", "n") in ([{"n": 1}], [{"n": 1, "name": None}])


def test_tables_are_looked_at_again_only_after_commits_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    committer = DeltaRsCommitter(str(tmp_path))
    looked: list[str] = []
    of = Constraints.of

    def counting(*given: Any) -> Constraints:
        looked.append("")
        return of(*given)

    monkeypatch.setattr(Constraints, "of", counting)
    for version in range(20):
        committer.state("chess", APP)
        commit(committer, version, staged(tmp_path, "chess", numbers(version)))
    assert len(looked) <= 3
    DeltaTable(tmp_path / "chess").alter.set_table_properties(
        {"delta.logRetentionDuration": "interval 9 days"}
    )
    committer.state("chess", APP)
    committer.state("chess", APP)
    assert len(looked) <= 4


def test_append_only_table_is_not_rewritten(tmp_path: Path) -> None:
    committer = DeltaRsCommitter(str(tmp_path))
    commit(committer, 0, staged(tmp_path, "chess", numbers(1)))
    assert committer.can_rewrite("chess", 1 << 20)
    DeltaTable(tmp_path / "chess").alter.set_table_properties({"delta.appendOnly": "true"})
    assert committer.can_write("chess")
    assert not committer.can_rewrite("chess", 1 << 20)
    commit(committer, 1, staged(tmp_path, "chess", numbers(2)))
    file = staged(tmp_path, "chess", numbers(3))
    with pytest.raises(TableError):
        committer.commit(Commit("chess", numbers().schema, (file,), (Mark(APP, 2),), "replace"))
    assert rows_in(tmp_path, "chess", "n") == [{"n": 1}, {"n": 2}]
