"""`headgate demo`: see it work, without any server."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headgate.cli.amounts import counted, lasted, number, rate
from headgate.cli.next_steps import print_next_steps
from headgate.cli.styled import styled
from headgate.cli.text_columns import print_facts

if TYPE_CHECKING:
    from headgate.cli.demo.story import Story
    from headgate.cli.progress.tally import Tally


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
    from headgate.cli.demo.folder import prepare_folder
    from headgate.cli.demo.story import Story
    from headgate.cli.progress.tally import Tally
    from headgate.cli.progress.view import choose_view
    from headgate.cli.quiet_spark import quiet_spark
    from headgate.inspect.own_tables import silver_tables
    from headgate.local import fetch_jars
    from headgate.pipeline import load_pipeline

    fetch_jars(["spark"], print)
    turn = prepare_folder(folder, keep)
    file = folder / "games.yaml"
    pipeline = load_pipeline(file)
    tally = Tally.of(pipeline, silver_tables(pipeline))
    with quiet_spark(), choose_view(progress, tally) as view:
        story = Story(folder, turn, view)
        story.land(pipeline)
    story.require_all_landed()
    _print_summary(folder, file, story, tally)


def _print_summary(folder: Path, file: Path, story: Story, tally: Tally) -> None:
    bad = tally.quarantined.total()
    print(styled(f"\nAll {number(tally.records)} records are in exactly one place", "bold"))
    print_facts(
        [
            ("records", f"{number(tally.rows)} landed, {number(bad)} quarantined"),
            ("tables", f"{number(len(tally.tables))}, of which {number(tally.new_tables)} new"),
            ("schema changes", f"{number(tally.changes)}, without a restart"),
            *(("", each) for each in story.told),
            (
                "rate",
                f"{rate(tally.records, tally.busy_seconds)} while landing, "
                f"{number(tally.fastest)} in the fastest batch",
            ),
            ("took", f"{lasted(tally.seconds)}, {counted(tally.batches, 'batch', 'batches')}"),
            ("tables are in", str(folder / "lake")),
        ]
    )
    print_next_steps(
        [
            (f"headgate tables {file}", "what is where"),
            (f"headgate schema {file} {story.changed_table}", "what a table went through"),
            (f"headgate quarantine list {file}", "what could not land, and why"),
        ]
    )
