"""`headgate simulate`: create records or change files whose schemas change."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headgate.cli.output import JsonOption, print_json
from headgate.cli.pipeline_argument import parse_duration
from headgate.errors import UsageError

if TYPE_CHECKING:
    from headgate.cli.simulation import Target
    from headgate.lab.pizza.simulate import Writing
    from headgate.lab.pizza.world import PizzaPlan

_DEFAULT_RECORDS = 100_000
_DEFAULT_CHANGES = 10_000
_FOR_DATABASE = ("psutil", "pymysql", "pymysqlreplication")

app = typer.Typer(
    rich_markup_mode=None, help="Create records or change files whose schemas change."
)

_To = Annotated[str, typer.Option(metavar="kafka|delta", help="Destination.")]
_Servers = Annotated[
    str | None, typer.Option(help="Kafka brokers.", show_default="those of headgate up")
]
_Registry = Annotated[
    str | None,
    typer.Option(
        help="URL of a registry, or a folder of schemas.",
        show_default="that of headgate up; ./schemas with --to delta",
    ),
]
_Inbox = Annotated[Path, typer.Option(help="Folder of the Delta table, with --to delta.")]
_Clean = Annotated[
    bool, typer.Option("--clean", help="First remove the records of an earlier simulation.")
]


@app.callback()
def simulate() -> None:
    """Create records or change files whose schemas change."""


@app.command()
def games(
    tables: Annotated[
        int, typer.Option(metavar="N", min=1, help="Number of games, one table each.")
    ] = 50,
    versions: Annotated[
        int, typer.Option(metavar="N", min=1, help="Schema versions per game.")
    ] = 5,
    records: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=0,
            help="Number of records.",
            show_default="100000; unlimited with --rate",
        ),
    ] = None,
    to: _To = "kafka",
    topic: Annotated[str, typer.Option(help="Name of the topic.")] = "games",
    servers: _Servers = None,
    registry: _Registry = None,
    inbox: _Inbox = Path("inbox"),
    partitions: Annotated[
        int, typer.Option(metavar="N", min=1, help="Partitions of a new topic.")
    ] = 4,
    seed: Annotated[
        int, typer.Option(metavar="N", min=0, help="The same seed gives the same records.")
    ] = 0,
    players: Annotated[int, typer.Option(metavar="N", min=1, help="Players per game.")] = 5000,
    bad: Annotated[
        str, typer.Option(metavar="SHARE", help="Share of bad records: 1%, 0.01.")
    ] = "0%",
    rate_: Annotated[
        float | None,
        typer.Option(
            "--rate",
            metavar="N",
            min=0.1,
            help="Records per second.",
            show_default="unlimited",
        ),
    ] = None,
    clean: _Clean = False,
    as_json: JsonOption = False,
) -> None:
    """Send events of simulated games to a Kafka topic or a Delta table.

    \b
      headgate simulate games                         to the broker of headgate up
      headgate simulate games --to delta --bad 1%     to ./inbox, schemas to ./schemas
      headgate simulate games --rate 1000             until Ctrl-C
      headgate simulate games --records 0 --clean     only clean up

    Each event is wrapped in a message with its game's name and schema id; all versions of all
    schemas are registered first.

    Next: headgate init, then headgate run PIPELINE --once
    """
    share = _share(bad)
    from headgate.cli.simulation import GAME_SCHEMAS, clean_up, print_summary, send, summary
    from headgate.lab.games import GamesPlan, Simulated

    target = _target(to, servers, registry, inbox, topic)
    removed = list(clean_up(target, GAME_SCHEMAS)) if clean else []
    if records is None and rate_ is None:
        records = _DEFAULT_RECORDS
    nothing = records == 0
    plan = GamesPlan(tables, versions, records, seed, share, rate_, players)
    sent = Simulated() if nothing else send(plan, target, partitions)
    if as_json:
        print_json(summary(sent, target, removed))
        return
    for what in removed:
        print(f"Removed {what}")
    if nothing:
        print("Nothing sent" if removed or not clean else "Nothing to clean up")
    else:
        print_summary(sent, target)


@app.command()
def shop(
    changes: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=0,
            help="Number of changes, rounded up to whole statements.",
            show_default="10000; unlimited with --rate",
        ),
    ] = None,
    to: Annotated[Path, typer.Option(metavar="DIR", help="Folder for the files.")] = Path(
        "landing"
    ),
    format_: Annotated[
        str, typer.Option("--format", metavar="avro|json", help="File format.")
    ] = "avro",
    seed: Annotated[
        int, typer.Option(metavar="N", min=0, help="The same seed gives the same changes.")
    ] = 0,
    rate_: Annotated[
        float | None,
        typer.Option(
            "--rate",
            metavar="N",
            min=0.1,
            help="Changes per second.",
            show_default="unlimited",
        ),
    ] = None,
    database: Annotated[
        bool,
        typer.Option("--database", help="Run the shop on a real database and read its binary log."),
    ] = False,
    clean: Annotated[
        bool, typer.Option("--clean", help="First remove the files of an earlier simulation.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Write change files of a simulated shop, in the format of Datastream.

    \b
      headgate simulate shop                          to ./landing, in Avro
      headgate simulate shop --format json            as JSON lines
      headgate simulate shop --rate 100               until Ctrl-C
      headgate simulate shop --database               on the database of headgate up --database
      headgate simulate shop --changes 0 --clean      only clean up

    Rows are inserted, updated and deleted, and their keys change; columns are added, dropped and
    widened, and a table is created. Every run starts with an empty shop: use --clean to remove the
    files of the last one. Avro and --database need the extra headgate[lab].

    Next: headgate init, then headgate run PIPELINE --once
    """
    if format_ not in ("avro", "json"):
        raise UsageError("bad-argument", f"unknown format `{format_}`", hint="use avro or json")
    from headgate.cli.simulation import clean_up_shop, print_shop_summary, shop_summary, write_shop
    from headgate.lab import require_lab
    from headgate.lab.shop.simulate import ShopPlan, SimulatedShop

    require_lab(*(["fastavro"] if format_ == "avro" else []), *(_FOR_DATABASE if database else ()))
    removed = list(clean_up_shop(to)) if clean else []
    if changes is None and rate_ is None:
        changes = _DEFAULT_CHANGES
    nothing = changes == 0
    plan = ShopPlan(to, changes, seed, rate_, "json" if format_ == "json" else "avro")
    written = SimulatedShop() if nothing else write_shop(plan, database)
    if as_json:
        print_json(shop_summary(written, plan, removed))
        return
    for what in removed:
        print(f"Removed {what}")
    if nothing:
        print("Nothing written" if removed or not clean else "Nothing to clean up")
    else:
        print_shop_summary(written, plan)


@app.command()
def pizza(
    stores: Annotated[int, typer.Option(metavar="N", min=1, help="Number of stores.")] = 10,
    history: Annotated[
        str, typer.Option(metavar="TIME", help="Length of the past: 30d, 12h; 0 for none.")
    ] = "30d",
    start: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="End of the past, in UTC.", show_default="now"),
    ] = None,
    speed: Annotated[
        float | None,
        typer.Option(
            metavar="N",
            min=0.1,
            help="Then go on, N times as fast as a real clock.",
            show_default="stop after the past",
        ),
    ] = None,
    orders_per_second: Annotated[
        float | None,
        typer.Option(
            metavar="N",
            min=0.1,
            help="Then go on, with N orders of all stores per second.",
            show_default="stop after the past",
        ),
    ] = None,
    for_: Annotated[
        str | None,
        typer.Option(
            "--duration",
            metavar="TIME",
            help="How long to go on: 90s, 10m.",
            show_default="until Ctrl-C",
        ),
    ] = None,
    broken_oven: Annotated[
        int | None,
        typer.Option(
            metavar="STORE",
            min=1,
            help="Break an oven of this store: when the past ends, or for its last day if "
            "nothing follows.",
        ),
    ] = None,
    versions: Annotated[
        str,
        typer.Option(
            metavar="N,N",
            help="Schema versions to write, one after the other: 1, 2 with event times, "
            "3 with the channel of orders.",
        ),
    ] = "2",
    seed: Annotated[
        int,
        typer.Option(metavar="N", min=0, help="The same seed and --start give the same records."),
    ] = 0,
    to: _To = "kafka",
    servers: _Servers = None,
    registry: _Registry = None,
    inbox: _Inbox = Path("inbox"),
    clean: _Clean = False,
    as_json: JsonOption = False,
) -> None:
    """Send orders of simulated pizza stores, and how they ended, to four Kafka topics.

    \b
      headgate simulate pizza                         30 days to the broker of headgate up
      headgate simulate pizza --to delta              to ./inbox, schemas to ./schemas
      headgate simulate pizza --speed 60              then an hour per minute, until Ctrl-C
      headgate simulate pizza --speed 60 --broken-oven 3
      headgate simulate pizza --history 0 --orders-per-second 50 --duration 5m
      headgate simulate pizza --history 0 --clean     only clean up

    Each store has its own demand, cooks and ovens. Orders wait for both, people who wait too long
    cancel, and now and then an oven breaks. The first records are wait times that an outdated model
    estimated. All are Avro in Confluent's framing, keyed by store. Every run starts with empty
    kitchens and order number 1: use --clean to remove the records of the last one. Needs the extra
    headgate[lab].

    Next: headgate init pizza, then headgate run PIPELINE --once
    """
    from headgate.cli.simulation import (
        PIZZA_SCHEMAS,
        clean_up,
        pizza_summary,
        print_pizza_summary,
        send_pizza,
    )
    from headgate.lab import require_lab
    from headgate.lab.pizza.records import TOPICS
    from headgate.lab.pizza.simulate import SimulatedPizza

    require_lab("fastavro")
    plan, writing = _pizza_plan(
        stores, seed, history, start, speed, orders_per_second, for_, broken_oven, versions
    )
    target = _target(to, servers, registry, inbox, *TOPICS)
    removed = list(clean_up(target, PIZZA_SCHEMAS)) if clean else []
    nothing = plan.days == 0
    sent = SimulatedPizza() if nothing else send_pizza(plan, writing, target)
    if as_json:
        print_json(pizza_summary(sent, target, removed))
        return
    for what in removed:
        print(f"Removed {what}")
    if nothing:
        print("Nothing sent" if removed or not clean else "Nothing to clean up")
    else:
        print_pizza_summary(sent, target)


def _pizza_plan(
    stores: int,
    seed: int,
    history: str,
    start: str | None,
    speed: float | None,
    orders_per_second: float | None,
    duration: str | None,
    broken_oven: int | None,
    versions: str,
) -> tuple[PizzaPlan, Writing]:
    from headgate.lab.pizza.simulate import Pace, Writing
    from headgate.lab.pizza.world import BrokenOven, PizzaPlan

    if speed is not None and orders_per_second is not None:
        raise UsageError(
            "bad-argument", "--speed and --orders-per-second exclude each other", hint="use one"
        )
    if broken_oven is not None and broken_oven > stores:
        raise UsageError("bad-argument", f"there is no store {broken_oven}", hint="see --stores")
    past = timedelta() if history.strip() == "0" else parse_duration("--history", history)
    seconds = None if duration is None else parse_duration("--duration", duration).total_seconds()
    end = _time(start)
    is_live = speed is not None or orders_per_second is not None
    if seconds is not None and not is_live:
        raise UsageError(
            "bad-argument",
            "--duration limits records after the past; none are asked for",
            hint="add --speed or --orders-per-second",
        )
    broken_from = end if is_live else end - timedelta(days=1)
    plan = PizzaPlan(
        stores,
        seed,
        end - past,
        None if is_live else past / timedelta(days=1),
        () if broken_oven is None else (BrokenOven(broken_oven, broken_from, _FOR_GOOD),),
    )
    pace = Pace(end, speed or 1.0, orders_per_second, seconds) if is_live else None
    return plan, Writing(pace, _versions(versions))


_FOR_GOOD = timedelta(days=36_500)


def _time(text: str | None) -> datetime:
    from headgate.config.units import parse_timestamp

    time = datetime.now(UTC).replace(microsecond=0) if text is None else parse_timestamp(text)
    if time is None:
        raise UsageError(
            "bad-argument",
            f"--start: `{text}` is not a time",
            hint='use a date such as 2026-11-01 or a time such as "2026-11-01 12:00:00"',
        )
    return time


def _versions(text: str) -> tuple[int, ...]:
    from headgate.lab.pizza.records import VERSIONS

    known = {str(version): version for version in range(1, VERSIONS + 1)}
    chosen = [known.get(part.strip()) for part in text.split(",")]
    versions = tuple(version for version in chosen if version is not None)
    if len(versions) != len(chosen):
        raise UsageError(
            "bad-argument",
            f"--versions: `{text}` is not a list of versions",
            hint=f"write one or more of {', '.join(known)}",
        )
    return versions


def _target(
    to: str, servers: str | None, registry: str | None, inbox: Path, *topics: str
) -> Target:
    from headgate.cli.simulation import Target

    if to == "kafka":
        return Target.kafka(servers, registry, *topics)
    if to == "delta":
        return Target.delta(inbox, registry, *topics)
    raise UsageError("bad-argument", f"cannot send to `{to}`", hint="use kafka or delta")


def _share(text: str) -> float:
    try:
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        share = -1
    if not 0 <= share <= 1:
        raise UsageError(
            "bad-argument", f"`{text}` is not a share between 0 and 1", hint="write 1% or 0.01"
        )
    return share
