"""Games that never were: names, and schemas that grow a column with each version."""

from __future__ import annotations

from dataclasses import dataclass

_THIRTY = """
chess go checkers backgammon reversi mancala shogi xiangqi ludo senet
poker bridge rummy hearts spades canasta cribbage euchre whist pinochle
tetris snake pong asteroids centipede frogger galaga breakout pacman tron
"""
_NAMES = _THIRTY.split()

BASE_COLUMNS = ("game_name", "user_name", "event_timestamp", "is_connection_stable")


@dataclass(frozen=True)
class Game:
    """One kind of event."""

    name: str

    def columns(self, version: int) -> list[str]:
        """Version 1 has one column of the game's own, each later version one more."""
        return [f"col_{self.name}_game_{number}" for number in range(version)]

    def proto(self, version: int) -> str:
        own = "".join(
            f"  string {column} = {number};\n"
            for number, column in enumerate(self.columns(version), start=5)
        )
        return (
            'syntax = "proto3";\n\n'
            'import "google/protobuf/timestamp.proto";\n\n'
            "message event {\n"
            "  string game_name = 1;\n"
            "  string user_name = 2;\n"
            "  google.protobuf.Timestamp event_timestamp = 3;\n"
            "  string is_connection_stable = 4;\n"
            f"{own}}}\n"
        )

    @property
    def subject(self) -> str:
        return f"{self.name}-value"


def games(count: int) -> list[Game]:
    """The first so many games; the first thirty have names of their own."""
    rounds = range(1, count // len(_NAMES) + 2)
    names = [name if turn == 1 else f"{name}_{turn}" for turn in rounds for name in _NAMES]
    return [Game(name) for name in names[:count]]
