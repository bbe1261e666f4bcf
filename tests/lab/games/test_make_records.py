from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

from headgate.lab.games import (
    BAD_KINDS,
    ENVELOPE,
    RecordMaker,
    RegisteredVersion,
    games,
    register_versions,
)
from headgate.reasons import Reason
from headgate.registry.folder import FolderRegistry


@pytest.fixture
def versions(tmp_path: Path) -> list[RegisteredVersion]:
    return register_versions(FolderRegistry(tmp_path), games(5), range(1, 4))


def test_every_version_of_every_game_is_registered_once(
    tmp_path: Path, versions: list[RegisteredVersion]
) -> None:
    again = register_versions(FolderRegistry(tmp_path), games(5), range(1, 4))
    assert [one.schema_id for one in again] == [one.schema_id for one in versions]
    assert len({one.schema_id for one in versions}) == 15
    assert {(one.game.name, one.version) for one in versions} == {
        (game.name, version) for game in games(5) for version in (1, 2, 3)
    }


@pytest.mark.parametrize("bad_share", [0.0, 0.3])
def test_same_seed_gives_the_same_bytes(
    versions: list[RegisteredVersion], bad_share: float
) -> None:
    first, second = (RecordMaker(versions, seed=7, bad_share=bad_share) for _ in range(2))
    for count in (100, 1, 50):
        assert first.make(count).values.equals(second.make(count).values)
    other = RecordMaker(versions, seed=8, bad_share=bad_share)
    assert not RecordMaker(versions, 7, bad_share).make(100).values.equals(other.make(100).values)


def test_all_games_and_versions_are_mixed(versions: list[RegisteredVersion]) -> None:
    values = RecordMaker(versions).make(1_000).values
    wrappers = ENVELOPE.decoder.decode(values).columns
    seen = Counter(
        zip(*(wrappers.column(name).to_pylist() for name in wrappers.schema.names[:2]), strict=True)
    )
    assert set(seen) == {(one.game.name, one.schema_id) for one in versions}
    assert min(seen.values()) > 30


def test_payload_has_the_values_of_its_own_version(versions: list[RegisteredVersion]) -> None:
    values = RecordMaker(versions).make(200).values
    by_id = {one.schema_id: one for one in versions}
    moments = []
    for row in ENVELOPE.decoder.decode(values).columns.to_pylist():
        version = by_id[row["schema_id"]]
        decoded = version.encoder.decode(pa.array([row["payload"]], pa.binary()))
        [event] = decoded.columns.to_pylist()
        assert event["game_name"] == row["game_name"] == version.game.name
        assert event["is_connection_stable"] in ("true", "false")
        assert all(event[name] for name in version.game.columns(version.version))
        moments.append(event["event_timestamp"])
    assert moments == sorted(set(moments))


def test_so_many_records_are_bad_as_are_counted(versions: list[RegisteredVersion]) -> None:
    made = RecordMaker(versions, bad_share=0.2).make(2_000)
    assert len(made.values) == 2_000
    assert made.bad.total() + made.by_game.total() == 2_000
    assert 300 < made.bad.total() < 500
    assert set(made.bad) == {kind.reason for kind in BAD_KINDS}
    assert made.values.null_count == made.bad[Reason.NULL_VALUE]


def test_no_record_is_bad_unless_asked_for(versions: list[RegisteredVersion]) -> None:
    made = RecordMaker(versions).make(500)
    assert not made.bad
    assert made.values.null_count == 0
