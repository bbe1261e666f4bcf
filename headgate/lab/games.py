"""Simulate a stream of game events: many games, several schema versions each."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa

from headgate.envelopes.wrapper import WrapperEnvelope
from headgate.formats.protobuf import ProtobufDecoder
from headgate.lab.destination import Destination
from headgate.reasons import Reason
from headgate.registry.registry import SchemaRegistry, SchemaText

_THIRTY = """
chess go checkers backgammon reversi mancala shogi xiangqi ludo senet
poker bridge rummy hearts spades canasta cribbage euchre whist pinochle
tetris snake pong asteroids centipede frogger galaga breakout pacman tron
"""
_NAMES = _THIRTY.split()


@dataclass(frozen=True)
class Game:
    """A game; its events have their own schema and table."""

    name: str

    def columns(self, version: int) -> list[str]:
        """Return the game's own columns: one in version 1, one more in each later version."""
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
    """Return the first `count` games; after the thirtieth, names repeat with a number."""
    rounds = range(1, count // len(_NAMES) + 2)
    names = [name if turn == 1 else f"{name}_{turn}" for turn in rounds for name in _NAMES]
    return [Game(name) for name in names[:count]]


Wrap = Callable[[str | None, int | None, bytes | None], bytes]
"""Route, schema id and payload to the bytes of a wrapper."""


@dataclass(frozen=True)
class BadKind:
    """A way to break a record, and the quarantine reason it must get."""

    reason: Reason
    corrupt: Callable[[Wrap, str, int, bytes], bytes | None]


UNKNOWN_ID = 2_000_000_000

BAD_KINDS = (
    BadKind(Reason.NULL_VALUE, lambda wrap, route, schema, payload: None),
    BadKind(
        Reason.ENVELOPE_UNDECODABLE,
        lambda wrap, route, schema, payload: wrap(route, schema, payload)[:-1],
    ),
    BadKind(Reason.ENVELOPE_UNDECODABLE, lambda wrap, route, schema, payload: b"\xff" * 40),
    BadKind(
        Reason.ENVELOPE_UNDECODABLE,
        lambda wrap, route, schema, payload: b"\x0a\xff\xff\xff\xff\x0fgame",
    ),
    BadKind(
        Reason.SCHEMA_UNKNOWN, lambda wrap, route, schema, payload: wrap(route, UNKNOWN_ID, payload)
    ),
    BadKind(Reason.ROUTE_MISSING, lambda wrap, route, schema, payload: wrap(None, schema, payload)),
    BadKind(
        Reason.ROUTE_UNUSABLE, lambda wrap, route, schema, payload: wrap("../..", schema, payload)
    ),
    BadKind(
        Reason.SCHEMA_ID_MISSING, lambda wrap, route, schema, payload: wrap(route, None, payload)
    ),
    BadKind(Reason.PAYLOAD_MISSING, lambda wrap, route, schema, payload: wrap(route, schema, None)),
    BadKind(
        Reason.PAYLOAD_UNDECODABLE,
        lambda wrap, route, schema, payload: wrap(route, schema, payload[:-1]),
    ),
    BadKind(
        Reason.PAYLOAD_UNDECODABLE,
        lambda wrap, route, schema, payload: wrap(route, schema, payload + b"\x0a"),
    ),
)

PLAYERS = 5_000
"""Players per game by default."""
_VALUES = 1_000
_FIRST_EVENT = datetime(2026, 1, 1, tzinfo=UTC)

ENVELOPE = WrapperEnvelope("wrapper", "game_name", "schema_id", "payload")


@dataclass(frozen=True)
class RegisteredVersion:
    """A registered version of a game's schema."""

    game: Game
    version: int
    schema_id: int
    encoder: ProtobufDecoder


@dataclass
class Made:
    """Records in the order they are sent; number of good ones by game, of bad ones by reason."""

    values: pa.BinaryArray
    by_game: Counter[str] = field(default_factory=Counter)
    bad: Counter[Reason] = field(default_factory=Counter)


def register_versions(
    registry: SchemaRegistry, games: Sequence[Game], versions: Sequence[int]
) -> list[RegisteredVersion]:
    """Register every version of every game, the older versions of a game first."""
    from concurrent.futures import ThreadPoolExecutor

    def register(game: Game) -> list[RegisteredVersion]:
        made = []
        for version in versions:
            text = SchemaText("PROTOBUF", game.proto(version))
            encoder = ProtobufDecoder.compile(text, (0,))
            made.append(
                RegisteredVersion(game, version, registry.register(game.subject, text), encoder)
            )
        return made

    if getattr(registry, "folder", None) is not None:
        return [one for game in games for one in register(game)]
    with ThreadPoolExecutor(8) as pool:
        return [one for made in pool.map(register, games) for one in made]


class RecordMaker:
    """Generates records; the same seed gives the same bytes."""

    def __init__(
        self,
        versions: Sequence[RegisteredVersion],
        seed: int = 0,
        bad_share: float = 0.0,
        players: int = PLAYERS,
    ) -> None:
        self._versions = versions
        self._random = np.random.default_rng(seed)
        self._bad_share = bad_share
        self._made = 0
        self._users = pa.array([f"player_{number:05d}" for number in range(players)])
        self._values = pa.array([f"value {number}" for number in range(_VALUES)])
        self._stable = pa.array(["true", "false"])

    def make(self, count: int) -> Made:
        """Return `count` records of all games and versions, mixed."""
        chosen = self._random.integers(0, len(self._versions), count)
        order = np.argsort(chosen, kind="stable")
        payloads = pa.concat_arrays(
            [self._payloads(self._versions[chosen[rows[0]]], rows) for rows in _runs(chosen, order)]
        )
        place = np.empty(count, np.int64)
        place[order] = np.arange(count)
        payloads = payloads.take(pa.array(place))
        routes = pa.array([one.game.name for one in self._versions]).take(pa.array(chosen))
        ids = pa.array([one.schema_id for one in self._versions], pa.int32()).take(pa.array(chosen))
        values = _wrap(routes, ids, payloads)
        self._made += count
        made = Made(values, Counter(routes.to_pylist()) if self._bad_share else Counter())
        return self._corrupt(made, chosen, payloads) if self._bad_share else made

    def _payloads(self, version: RegisteredVersion, rows: np.ndarray) -> pa.BinaryArray:
        count = len(rows)
        micros = int(_FIRST_EVENT.timestamp() * 1_000_000) + (self._made + rows) * 1_000
        columns = {
            "game_name": pa.repeat(version.game.name, count),
            "user_name": self._pick(self._users, count),
            "event_timestamp": pa.array(micros, pa.timestamp("us", "UTC")),
            "is_connection_stable": self._pick(self._stable, count),
        }
        for column in version.game.columns(version.version):
            columns[column] = self._pick(self._values, count)
        handler = version.encoder.handler
        schema = handler.schema()
        batch = pa.record_batch([columns[name] for name in schema.names], schema=schema)
        return handler.record_batch_to_array(batch)

    def _pick(self, pool: pa.Array, count: int) -> pa.Array:
        return pool.take(pa.array(self._random.integers(0, len(pool), count)))

    def _corrupt(self, made: Made, chosen: np.ndarray, payloads: pa.BinaryArray) -> Made:
        values = made.values.to_pylist()
        rows = np.flatnonzero(self._random.random(len(values)) < self._bad_share)
        kinds = self._random.integers(0, len(BAD_KINDS), len(rows))
        for row, kind in zip(rows, kinds, strict=True):
            version = self._versions[chosen[row]]
            bad = BAD_KINDS[kind]
            values[row] = bad.corrupt(
                _wrap_one, version.game.name, version.schema_id, payloads[int(row)].as_py()
            )
            made.by_game[version.game.name] -= 1
            made.bad[bad.reason] += 1
        return Made(pa.array(values, pa.binary()), made.by_game, made.bad)


def _runs(codes: np.ndarray, order: np.ndarray) -> Iterator[np.ndarray]:
    ordered = codes[order]
    yield from np.split(order, np.flatnonzero(np.diff(ordered)) + 1)


def _wrap(routes: pa.Array, ids: pa.Array, payloads: pa.Array) -> pa.BinaryArray:
    handler = ENVELOPE.decoder.handler
    batch = pa.record_batch([routes, ids, payloads], schema=handler.schema())
    return handler.record_batch_to_array(batch)


def _wrap_one(route: str | None, schema_id: int | None, payload: bytes | None) -> bytes:
    wrapped = _wrap(
        pa.array([route], pa.string()),
        pa.array([schema_id], pa.int32()),
        pa.array([payload], pa.binary()),
    )
    value: bytes = wrapped[0].as_py()
    return value


_PORTION = 200_000


@dataclass(frozen=True)
class GamesPlan:
    """What to simulate; the same plan gives the same records."""

    tables: int = 50
    versions: int = 5
    records: int | None = 100_000
    """Total number of records; None for unlimited."""
    seed: int = 0
    bad_share: float = 0.0
    rate: float | None = None
    """Records per second; None for unlimited."""
    players: int = PLAYERS
    """Players per game; fewer players means more events for each of them."""

    @property
    def games(self) -> Sequence[Game]:
        return games(self.tables)


@dataclass
class Simulated:
    """What has been sent so far."""

    records: int = 0
    seconds: float = 0.0
    bad: Counter[Reason] = field(default_factory=Counter)

    @property
    def rate(self) -> float:
        return self.records / self.seconds if self.seconds else 0.0


def simulate_games(
    plan: GamesPlan,
    registry: SchemaRegistry,
    destination: Destination,
    report: Callable[[str], None] = lambda _: None,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[Simulated]:
    """Send records in portions; yield the totals after each portion."""
    report(f"Registering {plan.tables * plan.versions} schemas")
    versions = register_versions(registry, plan.games, range(1, plan.versions + 1))
    maker = RecordMaker(versions, plan.seed, plan.bad_share, plan.players)
    sent = Simulated()
    began = time.perf_counter()
    portion = _PORTION if plan.rate is None else max(1, min(_PORTION, int(plan.rate / 2)))
    while plan.records is None or sent.records < plan.records:
        left = portion if plan.records is None else min(portion, plan.records - sent.records)
        made = maker.make(left)
        destination.send(made.values)
        sent.records += left
        sent.bad.update(made.bad)
        if plan.rate is not None:
            destination.flush()
            ahead = sent.records / plan.rate - (time.perf_counter() - began)
            if ahead > 0:
                sleep(ahead)
        sent.seconds = time.perf_counter() - began
        yield sent
    destination.flush()
    sent.seconds = time.perf_counter() - began
    yield sent
