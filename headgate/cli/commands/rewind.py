"""`headgate rewind`: a source table as of an earlier time."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Annotated

import typer

from headgate.amounts import counted
from headgate.cli.output import JsonOption, print_json, print_next_steps, printable, styled
from headgate.cli.pipeline_argument import (
    PipelineArgument,
    find_pipeline,
    load_change_pipeline,
    spark_when_needed,
)

if TYPE_CHECKING:
    from headgate.cdc.rewind import Rewound


def rewind(
    table: Annotated[
        str,
        typer.Option(
            metavar="T",
            help="A merged table, a change log, or a source table as database.table.",
        ),
    ],
    to: Annotated[
        str,
        typer.Option(
            metavar="WHEN",
            help="A time, in UTC unless it has a zone, or a position in the source's log.",
        ),
    ],
    pipeline: PipelineArgument = None,
    into: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Name of the new table.", show_default="T_at_WHEN"),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Create a table with a source table's rows as of an earlier time.

    \b
    Examples:
      headgate rewind shop.yaml --table shop_orders --to "2026-11-01 12:00"
      headgate rewind shop.yaml --table shop.orders --to 2026-11-01T12:00:00.5+01:00
      headgate rewind shop.yaml --table shop.orders --to mysql-bin.000014:4711 --into before

    Folds the change log into a new table with the merged table's columns; no other table
    changes. A time is on the source's clock; a date means its start. Changes up to and
    including the time or position count. A position is file:position, a GTID, scn:123 or
    16/CB002DB0.

    Rows known only from a backfill appear from the time of the backfill. With a position they
    count unless they are known to have changed between it and the backfill.

    Next: headgate verify PIPELINE --table T
    """
    file = find_pipeline(pipeline)
    declared = load_change_pipeline(file)
    from headgate.cdc.rewind import rewind as create_table

    with spark_when_needed(declared) as spark:
        made = create_table(declared, table, to, into, spark=spark)
    if as_json:
        print_json(made)
        return
    _print_rewound(made)
    command = f"headgate verify {file} --table {shlex.quote(table)}"
    print_next_steps([(command, "compare the merged table with its log")])


def _print_rewound(made: Rewound) -> None:
    from headgate.cdc.rewind import timestamp_text

    what = "row" if made.key else "change"
    when = timestamp_text(made.timestamp) or printable(made.position or "")
    print(f"Created {styled(made.table, 'bold')}: {counted(made.rows, what)}")
    print(f"It holds {printable(made.source)} as of {when}")
    print(f"Folded from version {made.log_version} of {made.log}")
    if not made.key:
        print("The source table has no key: the rows are all changes up to then")
    if made.begins:
        print(f"That is before the log, which begins at {timestamp_text(made.begins)}")
    if made.newest:
        print(f"The newest change in the log is from {timestamp_text(made.newest)}")
