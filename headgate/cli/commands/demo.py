"""`headgate demo`: see Headgate work, without any server."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headgate.amounts import counted, duration, number
from headgate.cli.output import print_next_steps
from headgate.examples import find_example

if TYPE_CHECKING:
    from headgate.lab.demo import DemoResult


def demo(
    folder: Annotated[Path, typer.Option(help="Where to put the tables.")] = Path(".demo"),
    records: Annotated[int, typer.Option(min=10, help="Number of records to land.")] = 500_000,
    keep: Annotated[
        bool, typer.Option("--keep", help="Continue with the tables of the last demo.")
    ] = False,
    progress: Annotated[
        str, typer.Option(metavar="auto|live|lines|none", help="How to show progress.")
    ] = "auto",
) -> None:
    """Land simulated games while their schemas change; needs no server.

    \b
      headgate demo

    Lands records of fifty games in three batches: one that creates the tables, a large one that
    shows the throughput, and one in which two games get a new column and a new game appears. In the
    first and the last, 1 % of the records are bad and go to quarantine.

    Next: headgate tables .demo/games.yaml
    """
    from headgate.cli.pipeline_argument import quiet_spark
    from headgate.cli.progress.lines import print_summary
    from headgate.cli.progress.live import choose_view
    from headgate.cli.progress.tally import Tally
    from headgate.config import load_pipeline
    from headgate.inspect.tables import landed_tables
    from headgate.jars.jars import fetch_jars
    from headgate.lab.demo import Demo, DemoSize, prepare_folder

    fetch_jars(["spark"], print)
    earlier = prepare_folder(folder, find_example("games-embedded").text(), keep)
    file = folder / "games.yaml"
    pipeline = load_pipeline(file)
    tally = Tally.of(pipeline, landed_tables(pipeline))
    with quiet_spark(), choose_view(progress, tally) as view:
        size = DemoSize.of(records)
        games = Demo(folder, earlier, listener=view, note=view.note, size=size)
        result = games.run(pipeline)
    print_summary(_headline(result), tally, _latency(result))
    print_next_steps(
        [
            (f"headgate tables {file}", "list the tables"),
            (f"headgate schema {file} {games.changed_table}", "show a table's schema changes"),
            (f"headgate quarantine list {file}", "show records that could not land, and why"),
        ]
    )


def _headline(result: DemoResult) -> str:
    if not result.complete:
        return "Stopped before the end"
    return f"All {number(result.sent)} records are in exactly one place"


def _latency(result: DemoResult) -> list[tuple[str, str]]:
    if result.latency is None:
        return []
    landed, derived = duration(result.latency.landed), duration(result.latency.derived)
    records = counted(result.latency.records, "record")
    visible = f"{landed} from produced to visible in silver tables, {derived} in derived tables"
    return [("latency", visible), ("", f"in the last batch, of {records}, with schema changes")]
