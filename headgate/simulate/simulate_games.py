"""The producer: registers every version of every game and sends records of all of them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from headgate.quarantine.reason import Reason
from headgate.schema.registry import Registry
from headgate.simulate.destination import Destination
from headgate.simulate.games import Game, games
from headgate.simulate.make_records import PLAYERS, RecordMaker, register_versions

_PORTION = 200_000


@dataclass(frozen=True)
class GamesPlan:
    """What to simulate; the same plan gives the same records."""

    tables: int = 50
    versions: int = 5
    records: int | None = 100_000
    """How many in all; None for no end."""
    seed: int = 0
    bad_share: float = 0.0
    rate: float | None = None
    """Records a second; None for as fast as it goes."""
    players: int = PLAYERS
    """Of each game; the fewer there are, the more often each of them plays."""

    @property
    def games(self) -> Sequence[Game]:
        return games(self.tables)


@dataclass
class Simulated:
    """What was sent so far."""

    records: int = 0
    seconds: float = 0.0
    bad: Counter[Reason] = field(default_factory=Counter)

    @property
    def rate(self) -> float:
        return self.records / self.seconds if self.seconds else 0.0


def simulate_games(
    plan: GamesPlan,
    registry: Registry,
    destination: Destination,
    say: Callable[[str], None] = lambda _: None,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[Simulated]:
    """Send portion by portion; each step of the iterator tells how far it is."""
    say(f"Registering {plan.tables * plan.versions} schemas")
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
