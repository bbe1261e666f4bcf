"""`headgate tables`: the tables of a pipeline."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.amounts import counted, number, size
from headgate.cli.output import JsonOption, ago, print_columns, print_json, print_next_steps
from headgate.cli.pipeline_argument import PipelineArgument, find_pipeline

if TYPE_CHECKING:
    from headgate.inspect.ledger import RecordedChange
    from headgate.inspect.tables import TableSummary

_HEADERS = ("TABLE", "ROWS", "COLUMNS", "FILES", "SIZE", "VERSION", "LAST BATCH", "LAST CHANGE")
_WITH_KINDS = ("TABLE", "KIND", *_HEADERS[1:])
_WITH_SOURCES = ("TABLE", "KIND", "SOURCE", *_HEADERS[1:])
_NUMBERS = ("ROWS", "COLUMNS", "FILES", "SIZE", "VERSION")


def tables(
    pipeline: PipelineArgument = None,
    as_json: JsonOption = False,
) -> None:
    """List tables with rows, columns, size and last schema change.

    \b
    Examples:
      headgate tables games.yaml

    Numbers come from the ledger; for merged, history and gold tables, from the table itself.

    Next: headgate schema PIPELINE TABLE
    """
    from headgate.config import load_pipeline
    from headgate.inspect.tables import read_tables

    file = find_pipeline(pipeline)
    found = read_tables(load_pipeline(file))
    if as_json:
        print_json(found)
        return
    if not found:
        print("Nothing has landed yet")
        print_next_steps([(f"headgate run {file} --once", "land what the source has")])
        return
    if any(each.kind == "log" for each in found):
        print_columns(_WITH_SOURCES, [_row_of_changes(each) for each in found], right=_NUMBERS)
    elif any(each.kind in ("gold", "predictions") for each in found):
        print_columns(_WITH_KINDS, [_row_with_kind(each) for each in found], right=_NUMBERS)
    else:
        print_columns(_HEADERS, [_row(each) for each in found], right=_NUMBERS)
    totals = [""]
    for kind, of_rows, of_tables in (
        ("silver", "record", "silver table"),
        ("log", "change", "change log"),
        ("gold", "row", "derived table"),
        ("predictions", "prediction", "table"),
    ):
        some = [each for each in found if each.kind == kind]
        if some:
            rows = counted(sum(each.rows for each in some), of_rows)
            totals.append(f"{rows} in {counted(len(some), of_tables)}")
    print("\n".join(totals))


def _row(table: TableSummary) -> tuple[str, ...]:
    return (
        table.table,
        number(table.rows),
        "?" if table.columns is None else number(table.columns),
        number(table.files),
        size(table.bytes),
        number(table.version),
        ago(table.last_at),
        "behind its log" if table.behind else _change(table.last_change),
    )


def _row_with_kind(table: TableSummary) -> tuple[str, ...]:
    name, *rest = _row(table)
    return (name, str(table.kind), *rest)


def _row_of_changes(table: TableSummary) -> tuple[str, ...]:
    name, *rest = _row(table)
    return (name, str(table.kind), table.route or "", *rest)


def _change(change: RecordedChange | None) -> str:
    if change is None:
        return ""
    what = "created" if change.change == "CreateTable" else change.text
    return f"{what} in batch {change.batch}"
