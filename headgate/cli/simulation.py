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
from headgate.lab.shop.datastream import FILE_NAME
from headgate.lab.shop.simulate import ShopPlan, SimulatedShop, simulate_shop

if TYPE_CHECKING:
    from headgate.lab.destination import Destination
    from headgate.registry.registry import SchemaRegistry


@dataclass(frozen=True)
class Target:
    """Destination of records and schemas; `servers` is None for a Delta inbox."""

    servers: str | None
    registry: str
    topic: str
    inbox: Path
    partitions: int = 4

    @classmethod
    def kafka(cls, servers: str | None, registry: str | None, topic: str, partitions: int) -> Self:
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
        return cls(servers, registry, topic, Path(), partitions)

    @classmethod
    def delta(cls, inbox: Path, registry: str | None, topic: str) -> Self:
        return cls(None, registry or "schemas", topic, inbox)

    def __str__(self) -> str:
        return f"topic {self.topic} at {self.servers}" if self.servers else str(self.inbox)

    def open(self) -> Destination:
        from headgate.lab.destination import DeltaDestination, KafkaDestination

        if self.servers is None:
            return DeltaDestination(str(self.inbox), self.topic)
        return KafkaDestination(self.servers, self.topic, self.partitions)

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


def send(plan: GamesPlan, target: Target) -> Simulated:
    """Send all records; Ctrl-C ends an unlimited simulation."""
    destination = target.open()
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


_NAMED_GAMES = 30
_TIMEOUT = 30.0
_POLL = 0.1


def clean_up(target: Target) -> Iterator[str]:
    """Remove the topic or inbox and the schema files; yield what was removed."""
    if target.servers is not None:
        if _remove_topic(target.servers, target.topic):
            yield f"topic {target.topic}"
    elif _remove_inbox(target.inbox):
        yield f"inbox {target.inbox}"
    if target.has_folder:
        count = _remove_schemas(Path(target.registry))
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


def _remove_schemas(folder: Path) -> int:
    names = "|".join(game.name for game in games(_NAMED_GAMES))
    simulated = re.compile(rf"\d+\.(?:{names})(?:_\d+)?-value\.proto")
    found = [path for path in folder.glob("*.proto") if simulated.fullmatch(path.name)]
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
