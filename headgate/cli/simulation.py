"""Run simulations from the command line: destination, progress, summary and clean-up."""

from __future__ import annotations

import re
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

from headgate.amounts import counted, duration, number, rate
from headgate.cli.output import print_next_steps
from headgate.errors import SourceError, UsageError
from headgate.lab.games import GamesPlan, Simulated, games, simulate_games
from headgate.lab.pizza.records import TOPICS
from headgate.lab.pizza.simulate import SimulatedPizza, Writing, simulate_pizza
from headgate.lab.pizza.world import PizzaPlan
from headgate.lab.shop.datastream import FILE_NAME
from headgate.lab.shop.simulate import ShopPlan, SimulatedShop, simulate_shop

if TYPE_CHECKING:
    from headgate.lab.destination import Destination, TopicsDestination
    from headgate.registry.registry import SchemaRegistry


@dataclass(frozen=True)
class Target:
    """Destination of records and schemas; `servers` is None for a Delta inbox."""

    servers: str | None
    registry: str
    topics: tuple[str, ...]
    inbox: Path = Path()

    @classmethod
    def kafka(cls, servers: str | None, registry: str | None, *topics: str) -> Self:
        """Return the given addresses, completed by those of the local services."""
        if servers is None or registry is None:
            from headgate.lab.services import find

            services = find()
            if services is None:
                raise UsageError(
                    "bad-argument",
                    "no local services are running in ./.headgate",
                    hint="headgate up starts them; --servers and --registry select others; "
                    "--to delta needs none",
                )
            servers = servers or services.servers
            registry = registry or services.registry
        return cls(servers, registry, topics)

    @classmethod
    def delta(cls, inbox: Path, registry: str | None, *topics: str) -> Self:
        return cls(None, registry or "schemas", topics, inbox)

    def __str__(self) -> str:
        if self.servers is None:
            return str(self.inbox)
        topics = (
            f"topic {self.topics[0]}" if len(self.topics) == 1 else f"{len(self.topics)} topics"
        )
        return f"{topics} at {self.servers}"

    def open_topic(self, partitions: int) -> Destination:
        """Open the only topic; a new one gets this number of partitions."""
        from headgate.lab.destination import DeltaDestination, KafkaDestination

        (topic,) = self.topics
        if self.servers is None:
            return DeltaDestination(str(self.inbox), topic)
        return KafkaDestination(self.servers, topic, partitions)

    def open_topics(self) -> TopicsDestination:
        """Open all topics; new ones get one partition each."""
        from headgate.lab.destination import DeltaTopics, KafkaTopics

        if self.servers is None:
            return DeltaTopics(str(self.inbox))
        return KafkaTopics(self.servers, self.topics)

    def open_registry(self) -> SchemaRegistry:
        from headgate.config import Registry as Declared
        from headgate.registry.open import open_registry

        declared = (
            Declared(folder=self.registry) if self.has_folder else Declared(url=self.registry)
        )
        return open_registry(declared)

    @property
    def has_folder(self) -> bool:
        """Whether the registry is a folder of schema files."""
        return not self.registry.startswith(("http://", "https://"))


_CLEAR = "\r\x1b[K"


def show(text: str) -> None:
    """Show progress on stderr, replacing the previous text; nothing unless it is a terminal."""
    if sys.stderr.isatty():
        print(f"{_CLEAR}{text}", end="", file=sys.stderr, flush=True)


def send(plan: GamesPlan, target: Target, partitions: int) -> Simulated:
    """Send all records; Ctrl-C ends an unlimited simulation."""
    destination = target.open_topic(partitions)
    sent = Simulated()
    try:
        for sent in simulate_games(plan, target.open_registry(), destination, report=show):
            show(_text(sent, plan.records))
    except KeyboardInterrupt:
        if plan.records is not None:
            raise
        destination.flush()
    finally:
        show("")
    return sent


def _text(sent: Simulated, of: int | None) -> str:
    total = f" of {number(of)}" if of is not None else ""
    stop = "" if of is not None else ", Ctrl-C to stop"
    return f"{number(sent.records)}{total} records, {rate(sent.records, sent.seconds)}{stop}"


def summary(sent: Simulated, target: Target, removed: list[str]) -> dict[str, object]:
    return {
        "records": sent.records,
        "seconds": round(sent.seconds, 3),
        "rate": round(sent.rate),
        "bad": {reason.value: count for reason, count in sent.bad.most_common()},
        "to": str(target),
        "registry": target.registry,
        "removed": removed,
    }


def print_summary(sent: Simulated, target: Target) -> None:
    print(
        f"Sent {counted(sent.records, 'record')} to {target} in {duration(sent.seconds)} "
        f"({rate(sent.records, sent.seconds)})"
    )
    if sent.bad:
        print(f"{number(sent.bad.total())} of them are bad, and will be quarantined:")
        for reason, count in sent.bad.most_common():
            print(f"  {number(count):>8}  {reason.value}")
    steps = [("headgate run games.yaml --once", "land them")]
    if not Path("games.yaml").exists():
        example = "games" if target.servers else "games-embedded"
        steps.insert(0, (f"headgate init {example}", "write a pipeline file"))
    print_next_steps(steps)


def shop_summary(written: SimulatedShop, plan: ShopPlan, removed: list[str]) -> dict[str, object]:
    return {
        "changes": written.changes,
        "backfilled": written.backfilled,
        "files": written.files,
        "schema_changes": written.schema_changes,
        "kinds": dict(written.kinds.most_common()),
        "tables": dict(written.tables.most_common()),
        "seconds": round(written.seconds, 3),
        "rate": round(written.rate),
        "format": plan.format,
        "to": str(plan.landing),
        "removed": removed,
    }


def print_shop_summary(written: SimulatedShop, plan: ShopPlan) -> None:
    print(
        f"Wrote {counted(written.changes, 'change')} of {counted(len(written.tables), 'table')} "
        f"to {plan.landing} in {duration(written.seconds)} ({number(written.rate)} changes/s)"
    )
    for kind, count in written.kinds.most_common():
        print(f"  {number(count):>8}  {kind}")
    if written.backfilled:
        print(f"{counted(written.backfilled, 'row')} in the backfill")
    print(f"{counted(written.files, 'file')}; {counted(written.schema_changes, 'schema change')}")
    steps = [("headgate run shop.yaml --once", "land them")]
    if not Path("shop.yaml").exists():
        steps.insert(0, ("headgate init shop", "write a pipeline file"))
    print_next_steps(steps)


def write_shop(plan: ShopPlan, on_database: bool) -> SimulatedShop:
    """Write all changes; Ctrl-C ends an unlimited simulation."""
    written = SimulatedShop()
    try:
        for written in _steps(plan, on_database):
            show(_changes_text(written, plan.changes))
    except KeyboardInterrupt:
        if plan.changes is not None:
            raise
    finally:
        show("")
    return written


def _steps(plan: ShopPlan, on_database: bool) -> Iterator[SimulatedShop]:
    if not on_database:
        return simulate_shop(plan, report=show)
    from headgate.lab.services import DEFAULT_FOLDER
    from headgate.lab.shop.database import run_on_database

    return run_on_database(plan, DEFAULT_FOLDER, show)


def _changes_text(written: SimulatedShop, of: int | None) -> str:
    total = f" of {number(of)}" if of is not None else ""
    stop = "" if of is not None else ", Ctrl-C to stop"
    return f"{number(written.changes)}{total} changes, {number(written.rate)} changes/s{stop}"


def send_pizza(plan: PizzaPlan, writing: Writing, target: Target) -> SimulatedPizza:
    """Send the records of a world; Ctrl-C ends live records."""
    destination = target.open_topics()
    sent = SimulatedPizza()
    try:
        show("Registering schemas")
        for sent in simulate_pizza(plan, target.open_registry(), destination, writing):
            show(_pizza_text(sent, writing))
    except KeyboardInterrupt:
        if writing.pace is None:
            raise
        destination.flush()
    finally:
        show("")
    return sent


def _pizza_text(sent: SimulatedPizza, writing: Writing) -> str:
    at = "" if sent.at is None else f", {sent.at:%a %d %b %H:%M}"
    stop = "" if writing.pace is None else ", Ctrl-C to stop"
    return f"{number(sent.orders)} orders, {number(sent.completed)} completed{at}{stop}"


def pizza_summary(sent: SimulatedPizza, target: Target, removed: list[str]) -> dict[str, object]:
    return {
        "records": sent.records,
        "orders": sent.orders,
        "completed": sent.completed,
        "cancelled": sent.cancelled,
        "mean_wait": None if sent.mean_wait is None else round(sent.mean_wait, 2),
        "until": sent.at,
        "seconds": round(sent.seconds, 3),
        "to": str(target),
        "registry": target.registry,
        "removed": removed,
    }


def print_pizza_summary(sent: SimulatedPizza, target: Target) -> None:
    print(
        f"Sent {counted(sent.records, 'record')} to {target} in {duration(sent.seconds)} "
        f"({rate(sent.records, sent.seconds)})"
    )
    print(f"  {number(sent.orders):>8}  orders")
    print(f"  {number(sent.completed):>8}  completed{_mean_wait(sent)}")
    print(f"  {number(sent.cancelled):>8}  cancelled")
    steps = [("headgate run confluent.yaml --once", "land them, one table per topic")]
    if not Path("confluent.yaml").exists():
        change = f"; set source.delta.path: {target.inbox} and registry: {target.registry}"
        purpose = f"write a pipeline file{'' if target.servers else change}"
        steps.insert(0, ("headgate init confluent", purpose))
    print_next_steps(steps)


def _mean_wait(sent: SimulatedPizza) -> str:
    return "" if sent.mean_wait is None else f" after {sent.mean_wait:.1f} minutes on average"


_NAMED_GAMES = 30
GAME_SCHEMAS = re.compile(
    rf"\d+\.(?:{'|'.join(game.name for game in games(_NAMED_GAMES))})(?:_\d+)?-value\.proto"
)
PIZZA_SCHEMAS = re.compile(rf"\d+\.(?:{'|'.join(TOPICS)})-value\.avsc")
_TIMEOUT = 30.0
_POLL = 0.1


def clean_up(target: Target, schemas: re.Pattern[str]) -> Iterator[str]:
    """Remove the topics or inbox and the schema files with such names; yield what was removed."""
    if target.servers is not None:
        for topic in target.topics:
            if _remove_topic(target.servers, topic):
                yield f"topic {topic}"
    elif _remove_inbox(target.inbox):
        yield f"inbox {target.inbox}"
    if target.has_folder:
        count = _remove_schemas(Path(target.registry), schemas)
        if count:
            yield f"{counted(count, 'schema')} in {target.registry}"


def _remove_topic(servers: str, topic: str) -> bool:
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    try:
        if topic not in admin.list_topics(timeout=10).topics:
            return False
        admin.delete_topics([topic])[topic].result(_TIMEOUT)
        deadline = time.monotonic() + _TIMEOUT
        # A topic of the same name can be created only after the old one is gone.
        while topic in admin.list_topics(timeout=10).topics and time.monotonic() < deadline:
            time.sleep(_POLL)
    except KafkaException as error:
        raise SourceError(
            "source-missing",
            f"cannot delete topic {topic} at {servers} ({error.args[0].str()})",
            hint="headgate up starts a local broker",
        ) from None
    return True


def _remove_inbox(inbox: Path) -> bool:
    if not inbox.exists():
        return False
    if not (inbox / "_delta_log").is_dir():
        raise UsageError(
            "bad-argument",
            f"{inbox} is not a Delta table; it was not removed",
            hint="check --inbox",
        )
    shutil.rmtree(inbox)
    return True


def _remove_schemas(folder: Path, names: re.Pattern[str]) -> int:
    found = [path for path in folder.glob("[0-9]*.*") if names.fullmatch(path.name)]
    for path in found:
        path.unlink()
    return len(found)


def clean_up_shop(landing: Path) -> Iterator[str]:
    """Remove the change files and folders that become empty; yield what was removed."""
    found = [
        path
        for path in landing.glob("shop_*/**/*")
        if FILE_NAME.fullmatch(path.name.removeprefix("."))
    ]
    for path in found:
        path.unlink()
    folders = {folder for path in found for folder in path.parents if landing in folder.parents}
    for folder in sorted(folders, key=lambda each: -len(each.parts)):
        if not any(folder.iterdir()):
            folder.rmdir()
    if found:
        yield f"{counted(len(found), 'file')} in {landing}"
