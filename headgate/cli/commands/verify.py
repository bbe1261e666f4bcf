"""`headgate verify`: are merged tables what their change logs say?"""

from __future__ import annotations

from typing import Annotated

import typer

from headgate.cli.amounts import now
from headgate.cli.find_pipeline import PipelineArgument, find_pipeline
from headgate.cli.json_output import print_json
from headgate.cli.next_steps import print_next_steps


def verify(
    pipeline: PipelineArgument = None,
    tables: Annotated[
        list[str] | None,
        typer.Option(
            "--table",
            metavar="T",
            help="A merged table, a change log, or a table of the source: database.table. May be "
            "given several times; all tables, if not at all.",
            show_default=False,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Compare merged and history tables with their change logs.

    \b
      headgate verify shop.yaml
      headgate verify shop.yaml --table shop_orders --table shop.visits

    Folds each log anew, up to the change that its tables have come to, and tells what is missing
    in them, too many or different. A table that is behind its log is not wrong. Writes nothing.
    Exits with 1 if there is any difference.

    Marks: - is missing, + is too many, ~ is different.

    Next: headgate rewind PIPELINE --table T --to WHEN makes a table that is right
    """
    from headgate.cli.change_pipeline import load_change_pipeline, spark_when_needed
    from headgate.cli.show_verified import as_record, print_verified, trouble_of

    file = find_pipeline(pipeline)
    declared = load_change_pipeline(file)
    from headgate.run.verify import verify as verify_tables

    with spark_when_needed(declared) as spark:
        verified = list(verify_tables(declared, tables or (), spark=spark))
    wrong = [one for one in verified if not one.is_well]
    if as_json:
        total = sum(one.total for one in verified)
        found = {"differences": total, "tables": [as_record(one) for one in verified]}
        print_json(
            found, errors=[{"table": one.table, "message": trouble_of(one)} for one in wrong]
        )
    elif not verified:
        print("There is nothing to verify: no merged and no history table")
        print_next_steps([(f"headgate run {file} --once", "land what the source has")])
    else:
        print_verified(verified)
        if wrong:
            when = f"{now():%Y-%m-%dT%H:%M:%S}"
            command = f"headgate rewind {file} --table {wrong[0].table} --to {when}"
            print_next_steps([(command, "what the log says, in a table of its own")])
    if wrong:
        raise typer.Exit(1)
