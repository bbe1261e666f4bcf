"""`headgate simulate`: create records or change files whose schemas change."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headgate.cli.output import JsonOption, print_json
from headgate.errors import UsageError

_DEFAULT_RECORDS = 100_000
_DEFAULT_CHANGES = 10_000
_FOR_DATABASE = ("psutil", "pymysql", "pymysqlreplication")

app = typer.Typer(
    rich_markup_mode=None, help="Create records or change files whose schemas change."
)


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
    to: Annotated[str, typer.Option(metavar="kafka|delta", help="Destination.")] = "kafka",
    topic: Annotated[str, typer.Option(help="Name of the topic.")] = "games",
    servers: Annotated[
        str | None, typer.Option(help="Kafka brokers.", show_default="those of headgate up")
    ] = None,
    registry: Annotated[
        str | None,
        typer.Option(
            help="URL of a registry, or a folder of schemas.",
            show_default="that of headgate up; ./schemas with --to delta",
        ),
    ] = None,
    inbox: Annotated[Path, typer.Option(help="Folder of the Delta table, with --to delta.")] = Path(
        "inbox"
    ),
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
    clean: Annotated[
        bool, typer.Option("--clean", help="First remove the records of an earlier simulation.")
    ] = False,
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
    if to not in ("kafka", "delta"):
        raise UsageError("bad-argument", f"cannot send to `{to}`", hint="use kafka or delta")
    share = _share(bad)
    from headgate.cli.simulation import Target, clean_up, print_summary, send, summary
    from headgate.lab.games import GamesPlan, Simulated

    if to == "kafka":
        target = Target.kafka(servers, registry, topic, partitions)
    else:
        target = Target.delta(inbox, registry, topic)
    removed = list(clean_up(target)) if clean else []
    if records is None and rate_ is None:
        records = _DEFAULT_RECORDS
    nothing = records == 0
    plan = GamesPlan(tables, versions, records, seed, share, rate_, players)
    sent = Simulated() if nothing else send(plan, target)
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
