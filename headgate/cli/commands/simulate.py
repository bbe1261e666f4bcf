"""`headgate simulate`: records to land, made up."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headgate.cli.output import print_json
from headgate.errors import UsageError

_USUAL_RECORDS = 100_000
_USUAL_CHANGES = 10_000

app = typer.Typer(rich_markup_mode=None, help="Make up records to land, with schemas that grow.")


@app.callback()
def simulate() -> None:
    """Make up records to land, with schemas that grow."""


@app.command()
def games(
    tables: Annotated[int, typer.Option(metavar="N", min=1, help="How many games.")] = 50,
    versions: Annotated[
        int, typer.Option(metavar="N", min=1, help="Versions of each game's schema.")
    ] = 5,
    records: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=0,
            help="How many records.",
            show_default="100000; no end with --rate",
        ),
    ] = None,
    to: Annotated[str, typer.Option(metavar="kafka|delta", help="Where they go.")] = "kafka",
    topic: Annotated[str, typer.Option(help="The topic's name.")] = "games",
    servers: Annotated[
        str | None, typer.Option(help="The brokers.", show_default="those of headgate up")
    ] = None,
    registry: Annotated[
        str | None,
        typer.Option(
            help="A registry's URL or a folder of schemas.",
            show_default="that of headgate up; ./schemas with --to delta",
        ),
    ] = None,
    inbox: Annotated[Path, typer.Option(help="The Delta table's folder, with --to delta.")] = Path(
        "inbox"
    ),
    partitions: Annotated[
        int, typer.Option(metavar="N", min=1, help="Of a topic that is made.")
    ] = 4,
    seed: Annotated[
        int, typer.Option(metavar="N", min=0, help="The same seed, the same records.")
    ] = 0,
    players: Annotated[int, typer.Option(metavar="N", min=1, help="Players of each game.")] = 5000,
    bad: Annotated[
        str, typer.Option(metavar="SHARE", help="Records that cannot land: 1%, 0.01.")
    ] = "0%",
    rate_: Annotated[
        float | None,
        typer.Option(
            "--rate",
            metavar="N",
            min=0.1,
            help="Records a second.",
            show_default="as fast as it goes",
        ),
    ] = None,
    clean: Annotated[
        bool, typer.Option("--clean", help="Remove what an earlier simulation sent, first.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Send events of made-up games to a topic or a Delta table.

    \b
      headgate simulate games                         to the broker of headgate up
      headgate simulate games --to delta --bad 1%     to ./inbox, schemas to ./schemas
      headgate simulate games --rate 1000             on and on, until Ctrl-C
      headgate simulate games --records 0 --clean     only clean up

    Each event is wrapped with its game's name and its schema's id; every version of every
    schema is registered first.

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
        records = _USUAL_RECORDS
    nothing = records == 0
    plan = GamesPlan(tables, versions, records, seed, share, rate_, players)
    sent = Simulated() if nothing else send(plan, target)
    if as_json:
        print_json(summary(sent, target, removed))
        return
    for what in removed:
        print(f"Removed {what}")
    if nothing:
        print("Nothing sent" if removed or not clean else "There was nothing to clean up")
    else:
        print_summary(sent, target)


@app.command()
def shop(
    changes: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=0,
            help="How many changes, and those that the last statement makes beyond.",
            show_default="10000; no end with --rate",
        ),
    ] = None,
    to: Annotated[Path, typer.Option(metavar="DIR", help="Where the files go.")] = Path("landing"),
    format_: Annotated[
        str, typer.Option("--format", metavar="avro|json", help="What the files are.")
    ] = "avro",
    seed: Annotated[
        int, typer.Option(metavar="N", min=0, help="The same seed, the same changes.")
    ] = 0,
    rate_: Annotated[
        float | None,
        typer.Option(
            "--rate",
            metavar="N",
            min=0.1,
            help="Changes a second.",
            show_default="as fast as it goes",
        ),
    ] = None,
    database: Annotated[
        bool,
        typer.Option("--database", help="Read them from the log of a real database that runs."),
    ] = False,
    clean: Annotated[
        bool, typer.Option("--clean", help="Remove what an earlier simulation wrote, first.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Write change files of a made-up shop, as Datastream writes them.

    \b
      headgate simulate shop                          to ./landing, in Avro
      headgate simulate shop --format json            the same in JSON lines
      headgate simulate shop --rate 100               on and on, until Ctrl-C
      headgate simulate shop --database               on the database of headgate up --database
      headgate simulate shop --changes 0 --clean      only clean up

    Rows come, change and go, keys change too; on the way columns are added, dropped and widened,
    and a table is made. Every run begins the shop anew: --clean removes what the last one wrote.

    Next: headgate init, then headgate run PIPELINE --once
    """
    if format_ not in ("avro", "json"):
        raise UsageError("bad-argument", f"`{format_}` is no format", hint="use avro or json")
    from headgate.cli.simulation import clean_up_shop, print_shop_summary, shop_summary, write_shop
    from headgate.lab.shop.simulate import ShopPlan, SimulatedShop

    removed = list(clean_up_shop(to)) if clean else []
    if changes is None and rate_ is None:
        changes = _USUAL_CHANGES
    nothing = changes == 0
    plan = ShopPlan(to, changes, seed, rate_, "json" if format_ == "json" else "avro")
    written = SimulatedShop() if nothing else write_shop(plan, database)
    if as_json:
        print_json(shop_summary(written, plan, removed))
        return
    for what in removed:
        print(f"Removed {what}")
    if nothing:
        print("Nothing written" if removed or not clean else "There was nothing to clean up")
    else:
        print_shop_summary(written, plan)


def _share(text: str) -> float:
    try:
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        share = -1
    if not 0 <= share <= 1:
        raise UsageError("bad-argument", f"`{text}` is no share", hint="write 1% or 0.01")
    return share
