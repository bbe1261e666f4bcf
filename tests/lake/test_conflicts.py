"""The conflicts of Delta: every kind of transaction against every kind of commit of others."""

from __future__ import annotations

from typing import Any

import pytest

from headgate.lake.actions import Action
from headgate.lake.conflicts import Cause, Conflict, Reads, Transaction, conflict
from headgate.lake.log import LogEntry

ID = "table"


def add(path: str, data_change: bool = True, **more: Any) -> Action:
    return {"add": {"path": path, "size": 1, "dataChange": data_change, **more}}


def remove(path: str, data_change: bool = True) -> Action:
    return {"remove": {"path": path, "dataChange": data_change}}


def info(is_blind: bool | None = None) -> Action:
    return {"commitInfo": {} if is_blind is None else {"isBlindAppend": is_blind}}


def mark(app: str, version: int) -> Action:
    return {"txn": {"appId": app, "version": version}}


def metadata(table_id: str = ID) -> Action:
    return {"metaData": {"id": table_id, "schemaString": "{}", "partitionColumns": []}}


PROTOCOL: Action = {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7}}
VECTOR = {"storageType": "u", "pathOrInlineDv": "x", "sizeInBytes": 1, "cardinality": 1}


def transaction(reads: Reads, *actions: Action, read: str | None = None) -> Transaction:
    apps = frozenset() if read is None else frozenset({read})
    return Transaction("mine", ID, actions, reads, apps)


MINE = {
    "blind append": transaction(Reads.NOTHING, add("m")),
    "marked append": transaction(Reads.NOTHING, add("m"), mark("ours", 5)),
    "fenced append": transaction(Reads.NOTHING, add("m"), read="ours"),
    "merge": transaction(Reads.TABLE, remove("a"), add("m"), mark("ours", 5)),
    "compaction": transaction(Reads.FILES, remove("a", False), remove("b", False), add("m", False)),
    "new columns": transaction(Reads.NOTHING, metadata(), add("m")),
    "new property": transaction(Reads.FILES, metadata()),
    "new feature": transaction(Reads.NOTHING, PROTOCOL, metadata(), add("m")),
}
EVERY = [*MINE]
ROWS = {"merge": Cause.ROWS}
FILES_OF_A = {"merge": Cause.FILES, "compaction": Cause.FILES}
OURS = dict.fromkeys(["marked append", "fenced append", "merge"], Cause.MARK)

WINNERS: dict[str, tuple[tuple[Action, ...], dict[str, Cause]]] = {
    "nothing": ((info(),), {}),
    "blind append": ((info(True), add("w")), ROWS),
    "append after reading": ((info(False), add("w")), ROWS),
    "append that does not say": ((add("w"),), ROWS),
    "delete of all rows of a": ((info(False), remove("a")), FILES_OF_A),
    "update of a": ((info(False), remove("a"), add("w")), FILES_OF_A),
    "update of another file": ((info(False), remove("c"), add("w")), ROWS),
    "vector for a": ((remove("a"), add("a", deletionVector=VECTOR)), FILES_OF_A),
    "vector for another file": ((remove("c"), add("c", deletionVector=VECTOR)), ROWS),
    "compaction of a": ((remove("a", False), remove("d", False), add("w", False)), FILES_OF_A),
    "compaction of others": ((remove("c", False), remove("d", False), add("w", False)), ROWS),
    "overwrite": ((remove("a"), remove("b"), remove("c"), add("w")), FILES_OF_A),
    "property": ((metadata(),), dict.fromkeys(EVERY, Cause.METADATA)),
    "columns with rows": (
        (metadata(), add("w")),
        {**dict.fromkeys(EVERY, Cause.METADATA), **ROWS},
    ),
    "overwrite with columns": (
        (metadata(), remove("a"), add("w")),
        {**dict.fromkeys(EVERY, Cause.METADATA), **FILES_OF_A},
    ),
    "feature": ((PROTOCOL,), dict.fromkeys(EVERY, Cause.PROTOCOL)),
    "feature with property": ((PROTOCOL, metadata()), dict.fromkeys(EVERY, Cause.PROTOCOL)),
    "same mark": ((mark("ours", 5), add("w")), {**ROWS, **OURS}),
    "later mark": ((mark("ours", 6),), OURS),
    "earlier mark": ((mark("ours", 4),), OURS),
    "mark with columns": (
        (metadata(), mark("ours", 5), add("w")),
        {**dict.fromkeys(EVERY, Cause.METADATA), **OURS},
    ),
    "mark with feature": (
        (PROTOCOL, mark("ours", 5)),
        {**dict.fromkeys(EVERY, Cause.PROTOCOL), **OURS},
    ),
    "mark of others": ((mark("theirs", 7), add("w")), ROWS),
    "mark of others alone": ((mark("theirs", 7),), {}),
    "replaced table": (
        (PROTOCOL, metadata("other"), mark("ours", 5), add("w")),
        dict.fromkeys(EVERY, Cause.TABLE),
    ),
    "escaped path": ((remove("%61"),), FILES_OF_A),
}


@pytest.mark.parametrize("winner", WINNERS)
@pytest.mark.parametrize("mine", MINE)
def test_conflict_of_each_transaction_with_each_winner(mine: str, winner: str) -> None:
    actions, expected = WINNERS[winner]
    found = conflict(MINE[mine], LogEntry(7, actions))
    assert (found and found.cause) == expected.get(mine)
    assert found is None or found.version == 7


def test_only_a_conflict_of_marks_or_tables_is_final() -> None:
    final = {cause for cause in Cause if Conflict(cause, 1).is_final}
    assert final == {Cause.MARK, Cause.TABLE}


def test_conflict_says_what_has_changed() -> None:
    found = conflict(MINE["marked append"], LogEntry(7, (mark("ours", 5),)))
    assert str(found) == "version 7: another run has committed the same or a later batch (ours)"
