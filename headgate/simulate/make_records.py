"""Wrapped game events, made column by column: no Python object per record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa

from headgate.envelope.wrapper import WrapperEnvelope
from headgate.quarantine.reason import Reason
from headgate.schema.protobuf import ProtobufDecoder
from headgate.schema.registry import Registry, SchemaText
from headgate.simulate.bad_records import BAD_KINDS
from headgate.simulate.games import Game

PLAYERS = 5_000
"""Of a game, unless it is said otherwise."""
_VALUES = 1_000
_FIRST_EVENT = datetime(2026, 1, 1, tzinfo=UTC)

ENVELOPE = WrapperEnvelope("wrapper", "game_name", "schema_id", "payload")


@dataclass(frozen=True)
class RegisteredVersion:
    """One version of one game's schema."""

    game: Game
    version: int
    schema_id: int
    encoder: ProtobufDecoder


@dataclass
class Made:
    """Records in the order in which they are sent, and what became of them."""

    values: pa.BinaryArray
    by_game: Counter[str] = field(default_factory=Counter)
    bad: Counter[Reason] = field(default_factory=Counter)


def register_versions(
    registry: Registry, games: Sequence[Game], versions: Sequence[int]
) -> list[RegisteredVersion]:
    """Make every version of every game known; older versions of a game first."""
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
    """Makes records from a seed: the same seed, the same bytes."""

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
        """So many records, all games and versions mixed."""
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
        return self._spoil(made, chosen, payloads) if self._bad_share else made

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

    def _spoil(self, made: Made, chosen: np.ndarray, payloads: pa.BinaryArray) -> Made:
        values = made.values.to_pylist()
        rows = np.flatnonzero(self._random.random(len(values)) < self._bad_share)
        kinds = self._random.integers(0, len(BAD_KINDS), len(rows))
        for row, kind in zip(rows, kinds, strict=True):
            version = self._versions[chosen[row]]
            bad = BAD_KINDS[kind]
            values[row] = bad.spoil(
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
