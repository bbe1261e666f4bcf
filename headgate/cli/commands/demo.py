"""`headgate demo`: see it work, without any server."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headgate.cli.output import number, print_next_steps

if TYPE_CHECKING:
    from headgate.lab.demo import Story


def demo(
    folder: Annotated[Path, typer.Option(help="Where everything is put.")] = Path(".demo"),
    keep: Annotated[
        bool, typer.Option("--keep", help="Go on with the tables of the last demo.")
    ] = False,
    progress: Annotated[
        str, typer.Option(metavar="auto|live|lines|none", help="What to show meanwhile.")
    ] = "auto",
) -> None:
    """See made-up games land while their schemas change; needs no server.

    \b
      headgate demo

    Fifty games, 200,000 records, 1 % of them bad. While the stream runs, two games get a new
    column and a new game appears.

    Next: headgate tables .demo/games.yaml
    """
    from headgate.cli.pipeline_argument import quiet_spark
    from headgate.cli.progress.lines import print_summary
    from headgate.cli.progress.live import choose_view
    from headgate.cli.progress.tally import Tally
    from headgate.config import load_pipeline
    from headgate.inspect.tables import landed_tables
    from headgate.jars.jars import fetch_jars
    from headgate.lab.demo import Story, prepare_folder

    fetch_jars(["spark"], print)
    turn = prepare_folder(folder, keep)
    file = folder / "games.yaml"
    pipeline = load_pipeline(file)
    tally = Tally.of(pipeline, landed_tables(pipeline))
    with quiet_spark(), choose_view(progress, tally) as view:
        story = Story(folder, turn, view)
        story.land(pipeline)
    end = f"All {number(story.sent)} records are in exactly one place"
    print_summary(end if story.complete else "Stopped before the end", tally)
    _print_next(file, story)


def _print_next(file: Path, story: Story) -> None:
    print_next_steps(
        [
            (f"headgate tables {file}", "what is where"),
            (f"headgate schema {file} {story.changed_table}", "what a table went through"),
            (f"headgate quarantine list {file}", "what could not land, and why"),
        ]
    )
