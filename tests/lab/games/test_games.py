from __future__ import annotations

import pytest

from headgate.formats.protobuf import ProtobufDecoder
from headgate.lab.games import Game, games
from headgate.registry.registry import SchemaText
from headgate.schema.names import safe_name

BASE_COLUMNS = ("game_name", "user_name", "event_timestamp", "is_connection_stable")


@pytest.mark.parametrize("count", [1, 29, 30, 31, 250, 1_000])
def test_every_game_has_a_plain_name_of_its_own(count: int) -> None:
    names = [game.name for game in games(count)]
    assert len(set(names)) == count
    assert all(safe_name(name) == name for name in names)


def test_more_games_begin_with_the_same_ones() -> None:
    assert games(250)[:50] == games(50)


def test_each_version_has_one_column_more() -> None:
    game = Game("chess")
    for version in (1, 2, 10):
        decoder = ProtobufDecoder.compile(SchemaText("PROTOBUF", game.proto(version)), (0,))
        assert decoder.schema.names == [*BASE_COLUMNS, *game.columns(version)]
        assert len(game.columns(version)) == version
        assert game.columns(version)[: version - 1] == game.columns(version - 1)
