"""Rejected changes are in quarantine once, however often their file is read."""

from __future__ import annotations

import gzip
import os
from collections import Counter
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import pytest

from headgate.envelopes.datastream.changes import MAX_REJECTED
from headgate.envelopes.datastream.file import extract_records
from headgate.quarantine.filter import QuarantineFilter
from headgate.quarantine.operations import drop_quarantine, replay_quarantine
from headgate.testing import FailingCommitter
from tests.cdc.change_lake import ChangeLake
from tests.envelopes.datastream.writing import avro, change, json_change, lines, schema

FROZEN = {"contract": {"columns": "discard_row", "types": "discard_row"}}
"""Rejects changes with a new column."""


def user(number: int, **more: Any) -> dict[str, Any]:
    source = {"log_position": number}
    return json_change({"id": number, "name": "Ada", **more}, source, uuid=f"user-{number}")


def write(lake: ChangeLake, name: str, content: bytes) -> Path:
    path = lake.folder / "landing" / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    return path


def states(lake: ChangeLake) -> Counter[tuple[str, str]]:
    return Counter((row["state"], row["reason"]) for row in lake.rows("quarantine"))


def landed(lake: ChangeLake) -> list[str]:
    return sorted(row["_uuid"] for row in lake.rows("log_shop_users"))


def rejected_in(lake: ChangeLake, file: Path) -> int:
    (row,) = (row for row in lake.rows("_files") if row["path"] == str(file))
    return int(row["rejected"])


@pytest.fixture
def lake(tmp_path: Path) -> ChangeLake:
    lake = ChangeLake(tmp_path, FROZEN)
    lake.land_files([write(lake, "first.json", lines(user(0)))])
    return lake


def evolving(lake: ChangeLake) -> ChangeLake:
    """Return the same lake under a contract that allows new columns."""
    return ChangeLake(lake.folder)


@pytest.mark.parametrize("form", ["json", "gzip", "avro"])
def test_file_with_too_many_rejected_changes_is_one_row(lake: ChangeLake, form: str) -> None:
    many = [user(number, age=1) for number in range(1, MAX_REJECTED + 2)]
    content = lines(*many, user(5_000))
    if form == "gzip":
        content = gzip.compress(content)
    elif form == "avro":
        rows = [
            change(one["payload"], {"log_position": at}, uuid=one["uuid"])
            for at, one in enumerate(many)
        ]
        columns = {"id": ["null", "long"], "name": ["null", "string"], "age": ["null", "int"]}
        content = avro(schema(columns), [*rows, change({"id": 5_000}, uuid="user-5000")], "deflate")
    file = write(lake, "many", content)
    lake.land_files([file])
    (row,) = lake.rows("quarantine")
    assert (row["reason"], row["route"], row["_offset"]) == (
        "contract_columns", '["shop", null, "users"]', None,
    )  # fmt: skip
    assert row["detail"].startswith(f"{MAX_REJECTED + 1} changes of it, the first: ")
    assert row["value"] == content
    assert rejected_in(lake, file) == MAX_REJECTED + 1
    assert landed(lake) == ["user-0", "user-5000"]
    done = replay_quarantine(evolving(lake).pipeline)
    assert (done.landed, done.remaining) == ({"log_shop_users": MAX_REJECTED + 1}, {})
    assert len(landed(lake)) == len(set(landed(lake))) == MAX_REJECTED + 3
    assert states(lake) == {("replayed", "contract_columns"): 1}


def test_file_stays_while_some_of_its_records_cannot_land(lake: ChangeLake) -> None:
    junk = b"{}\n" * MAX_REJECTED
    file = write(lake, "many.json", lines(user(1, age=3)) + junk + lines(user(2)))
    lake.land_files([file])
    assert states(lake) == {("open", "change_unreadable"): 1}
    done = replay_quarantine(evolving(lake).pipeline)
    assert (done.landed, done.remaining) == ({"log_shop_users": 1}, {"change_unreadable": 1})
    assert landed(lake) == ["user-0", "user-1", "user-2"]
    assert replay_quarantine(evolving(lake).pipeline).landed == {}
    (row,) = lake.rows("quarantine")
    assert row["detail"].startswith(f"{MAX_REJECTED} changes of it, the first: ")


def test_file_lands_though_changes_of_it_are_left_out(lake: ChangeLake) -> None:
    audit = json_change({"id": 1}, {"table": "audit"}, uuid="audit-1")
    many = [user(number, age=1) for number in range(1, MAX_REJECTED + 2)]
    declared = {
        **FROZEN,
        "source": lake.pipeline.change_files.model_copy(update={"exclude": ("shop.audit",)}),
    }
    lake = ChangeLake(lake.folder, declared)
    lake.land_files([write(lake, "many.json", lines(*many, audit))])
    allowed = ChangeLake(lake.folder, {**declared, "contract": {}})
    done = replay_quarantine(allowed.pipeline)
    assert (done.landed, done.remaining) == ({"log_shop_users": MAX_REJECTED + 1}, {})


def test_file_of_junk_is_one_row_with_its_bytes(lake: ChangeLake) -> None:
    content = gzip.compress(b"junk\n" * 1_000_000)
    file = write(lake, "junk.gz", content)
    lake.land_files([file])
    (row,) = lake.rows("quarantine")
    assert (row["reason"], row["value"]) == ("file_unreadable", content)
    assert rejected_in(lake, file) == 1


def test_rejected_changes_of_many_tables_are_extracted_in_one_pass(
    lake: ChangeLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes: list[int] = []

    def spied(content: bytes, positions: Collection[int]) -> Iterator[tuple[int, bytes]]:
        passes.append(len(positions))
        return extract_records(content, positions)

    monkeypatch.setattr("headgate.cdc.open.extract_records", spied)
    declared = {"contract": {"tables": "freeze"}}
    lake = ChangeLake(lake.folder, declared)
    rows = [json_change({"id": 1}, {"table": f"t{at}"}, uuid=f"u{at}") for at in range(50)]
    lake.land_files([write(lake, "tables.json", lines(*rows))])
    assert passes == [50]
    found = {row["route"]: row["value"] for row in lake.rows("quarantine")}
    assert found['["shop", null, "t7"]'] == lines(rows[7])
    assert len(found) == 50


def test_touched_file_is_quarantined_once(lake: ChangeLake) -> None:
    rejected = write(lake, "rejected.json", lines(user(1, age=3), user(2)) + b"{}\n")
    junk = write(lake, "junk", b"junk\n")
    lake.land_files([rejected, junk])
    before = lake.rows("quarantine")
    assert len(before) == 3
    for file in (rejected, junk):
        os.utime(file, (1_000, 1_000))
    lake.land_files([rejected, junk])
    assert lake.rows("quarantine") == before
    assert len(lake.rows("_files")) == 5
    assert landed(lake) == ["user-0", "user-2"]


def test_grown_file_adds_only_its_new_rejects(lake: ChangeLake) -> None:
    file = write(lake, "grows.json", lines(user(1, age=3)))
    lake.land_files([file])
    file.write_bytes(file.read_bytes() + lines(user(2), user(3, age=4)))
    lake.land_files([file])
    file.write_bytes(file.read_bytes() + b"\n")
    lake.land_files([file])
    rows = sorted(lake.rows("quarantine"), key=lambda row: row["_offset"])
    assert [(row["_offset"], row["value"]) for row in rows] == [
        (0, lines(user(1, age=3))),
        (2, lines(user(3, age=4))),
    ]


def test_other_contents_at_the_same_place_are_quarantined(lake: ChangeLake) -> None:
    file = write(lake, "rewritten.json", lines(user(1, age=3)))
    lake.land_files([file])
    drop_quarantine(lake.pipeline, QuarantineFilter())
    file.write_bytes(lines(user(2, age=3)))
    lake.land_files([file])
    assert states(lake) == {("dropped", "contract_columns"): 1, ("open", "contract_columns"): 1}


def test_settled_changes_do_not_come_back(lake: ChangeLake) -> None:
    file = write(lake, "rejected.json", lines(user(1, age=3)) + b"{}\n")
    lake.land_files([file])
    replay_quarantine(evolving(lake).pipeline, QuarantineFilter(reason="contract_columns"))
    drop_quarantine(lake.pipeline, QuarantineFilter())
    settled = {("replayed", "contract_columns"): 1, ("dropped", "change_unreadable"): 1}
    assert states(lake) == settled
    os.utime(file, (1_000, 1_000))
    lake.land_files([file])
    assert states(lake) == settled
    assert landed(lake) == ["user-0", "user-1"]


def test_rejects_that_wait_for_their_commit_are_known(lake: ChangeLake) -> None:
    file = write(lake, "rejected.json", lines(user(1, age=3)))
    lake.committer = failing = FailingCommitter(lake.committer, refusing={"quarantine"})
    lake.land_files([file])
    os.utime(file, (1_000, 1_000))
    lake.land_files([file])
    failing.heal()
    lake.run()
    assert states(lake) == {("open", "contract_columns"): 1}


def test_quarantine_is_not_read_for_new_files(
    lake: ChangeLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> set[str]:
        raise AssertionError("the quarantine is read")

    monkeypatch.setattr("headgate.cdc.open.known_rejections", refuse)
    lake.land_files([write(lake, "rejected.json", lines(user(1, age=3)))])
    assert states(lake) == {("open", "contract_columns"): 1}


def test_too_large_file_is_quarantined_once_for_its_size(tmp_path: Path) -> None:
    lake = ChangeLake(tmp_path, {"max_file_bytes": "1 kB"})
    file = write(lake, "large.json", lines(*map(user, range(10))))
    lake.land_files([file])
    os.utime(file, (1_000, 1_000))
    lake.land_files([file])
    assert states(lake) == {("open", "too_large"): 1}
