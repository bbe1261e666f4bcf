"""`headgate rewind`: a source table as it was."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Annotated

import typer

from headgate.cli.output import counted, print_json, print_next_steps, printable, styled
from headgate.cli.pipeline_argument import PipelineArgument, find_pipeline

if TYPE_CHECKING:
    from headgate.cdc.rewind import Rewound


def rewind(
    table: Annotated[
        str,
        typer.Option(
            metavar="T",
            help="A merged table, a change log, or a table of the source: database.table.",
        ),
    ],
    to: Annotated[
        str,
        typer.Option(
            metavar="WHEN",
            help="A moment, in UTC unless it names a zone, or a position in the source's log.",
        ),
    ],
    pipeline: PipelineArgument = None,
    into: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="What the new table is called: T_at_WHEN, if not said."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Make a table of what a source table was at some time.

    \b
      headgate rewind shop.yaml --table shop_orders --to "2026-11-01 12:00"
      headgate rewind shop.yaml --table shop.orders --to 2026-11-01T12:00:00.5+01:00
      headgate rewind shop.yaml --table shop.orders --to mysql-bin.000014:4711 --into before

    Folds the change log into a new table of the lake, with the columns of the merged one, and
    changes no other table. A moment is one of the source's clock, and everything up to it counts;
    of a position (file:position, a GTID, scn:123 or 16/CB002DB0) all changes at it count too. A
    date is its beginning.

    Rows that only a backfill told of appear from the time of the backfill on. A position has no
    time: there they count, unless they are known to have changed between it and the backfill.

    Next: headgate verify PIPELINE --table T
    """
    from headgate.cli.pipeline_argument import load_change_pipeline, spark_when_needed

    file = find_pipeline(pipeline)
    declared = load_change_pipeline(file)
    from headgate.cdc.rewind import rewind as make_table

    with spark_when_needed(declared) as spark:
        made = make_table(declared, table, to, into, spark=spark)
    if as_json:
        print_json(made)
        return
    _print_rewound(made)
    command = f"headgate verify {file} --table {shlex.quote(table)}"
    print_next_steps([(command, "compare what is merged with its log")])


def _print_rewound(made: Rewound) -> None:
    from headgate.cdc.rewind import moment_text

    what = "row" if made.key else "change"
    when = moment_text(made.moment) or printable(made.position or "")
    print(f"Made {styled(made.table, 'bold')}: {counted(made.rows, what)}")
    print(f"That is {printable(made.source)} as of {when}")
    print(f"Folded from version {made.log_version} of {made.log}")
    if not made.key:
        print("Nothing tells its rows apart: these are all changes until then")
    if made.begins:
        print(f"Nothing is known of then: the log begins at {moment_text(made.begins)}")
    if made.newest:
        print(f"The newest change in the log is of {moment_text(made.newest)}")
