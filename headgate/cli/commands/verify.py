"""`headgate verify`: compare merged tables with their change logs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headgate.amounts import counted, number
from headgate.cli.output import (
    JsonOption,
    Style,
    now,
    print_columns,
    print_json,
    print_next_steps,
    printable,
    styled,
)
from headgate.cli.pipeline_argument import (
    PipelineArgument,
    find_pipeline,
    load_change_pipeline,
    spark_when_needed,
)

if TYPE_CHECKING:
    from headgate.cdc.compare import RowDifferences
    from headgate.cdc.verify import TableVerified


def verify(
    pipeline: PipelineArgument = None,
    tables: Annotated[
        list[str] | None,
        typer.Option(
            "--table",
            metavar="T",
            help="A merged table, a change log, or a source table as database.table; repeat "
            "for several; all if none is given.",
            show_default=False,
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Compare merged and history tables with their change logs.

    \b
    Examples:
      headgate verify shop.yaml
      headgate verify shop.yaml --table shop_orders --table shop.visits

    Recomputes each table from its log, up to the last change it has merged, and reports rows
    that are missing, extra or different. Being behind the log is not a difference. Writes
    nothing. Exits with 1 if it finds a difference.

    Marks: - missing, + extra, ~ different.

    Next: headgate rewind PIPELINE --table T --to WHEN recreates the correct rows
    """
    file = find_pipeline(pipeline)
    declared = load_change_pipeline(file)
    from headgate.cdc.verify import verify as verify_tables

    with spark_when_needed(declared) as spark:
        verified = list(verify_tables(declared, tables or (), spark=spark))
    wrong = [one for one in verified if not one.is_ok]
    if as_json:
        total = sum(one.total for one in verified)
        found = {"differences": total, "tables": [as_record(one) for one in verified]}
        print_json(
            found, errors=[{"table": one.table, "message": problems_of(one)} for one in wrong]
        )
    elif not verified:
        print("Nothing to verify: no merged or history table exists yet")
        print_next_steps([(f"headgate run {file} --once", "land what the source has")])
    else:
        print_verified(verified)
        if wrong:
            when = f"{now():%Y-%m-%dT%H:%M:%S}"
            command = f"headgate rewind {file} --table {wrong[0].table} --to {when}"
            print_next_steps([(command, "create a table with the correct rows")])
    if wrong:
        raise typer.Exit(1)


_HEADERS = ("TABLE", "ROWS", "MISSING", "EXTRA", "DIFFERENT", "")
_MAX_VALUE = 40
_MAX_COLUMNS = 6


def print_verified(verified: Sequence[TableVerified]) -> None:
    print_columns(_HEADERS, [_row(one) for one in verified], right=_HEADERS[1:5])
    for one in verified:
        if not one.is_ok:
            _print_wrong(one)
    total = sum(one.total for one in verified)
    unverified = sum(one.trouble is not None for one in verified)
    summary = [f"{counted(total, 'difference')} in {counted(len(verified), 'table')}"]
    summary += [f"{counted(unverified, 'table')} could not be verified"] if unverified else []
    print(f"\n{', '.join(summary)}")


def problems_of(one: TableVerified) -> str:
    """`2 rows are missing, 1 row is extra`."""
    found = one.differences
    problems = [one.trouble] if one.trouble else []
    if one.absent_columns:
        problems.append(f"missing columns: {', '.join(one.absent_columns)}")
    if one.other_key is not None:
        key = ", ".join(one.other_key) or "none"
        problems.append(f"merged by {', '.join(one.key) or 'no key'}, but the key is {key}")
    if found:
        problems += [
            f"{counted(amount, 'row')} {is_wrong if amount == 1 else are_wrong}"
            for amount, is_wrong, are_wrong in (
                (found.missing, "is missing", "are missing"),
                (found.too_many, "is extra", "are extra"),
                (found.different, "differs", "differ"),
            )
            if amount
        ]
    return ", ".join(problems)


def as_record(one: TableVerified) -> dict[str, object]:
    """Return all fields for JSON, with `ok`."""
    return {**{field.name: getattr(one, field.name) for field in fields(one)}, "ok": one.is_ok}


def _row(one: TableVerified) -> tuple[str, ...]:
    found = one.differences
    amounts = (found.rows, found.missing, found.too_many, found.different) if found else ()
    return (one.table, *(tuple(map(number, amounts)) or ("-",) * 4), _state(one))


def _state(one: TableVerified) -> str:
    if one.trouble:
        return "not verified"
    if one.left_out:
        return f"skipped: {one.left_out}"
    if one.log_version is None:
        return "not merged yet"
    state = "ok" if one.is_ok else "wrong"
    return f"{state}, {counted(one.behind, 'version')} behind its log" if one.behind else state


def _print_wrong(one: TableVerified) -> None:
    print(f"\n{styled(printable(one.table), 'bold')}: {printable(problems_of(one))}")
    if one.differences:
        _print_examples(one.differences)


def _print_examples(found: RowDifferences) -> None:
    for row in found.missing_rows:
        _print_example("-", "red", row.key, _listed(row.columns))
    for row in found.rows_too_many:
        _print_example("+", "yellow", row.key, _listed(row.columns))
    for different in found.different_rows:
        wrong = {
            name: f"{_shown(value.found)}, expected {_shown(value.should_be)}"
            for name, value in different.columns.items()
        }
        columns = "; ".join(f"{name} {text}" for name, text in wrong.items())
        _print_example("~", "cyan", different.key, columns)


def _print_example(mark: str, style: Style, key: Mapping[str, Any], columns: str) -> None:
    print(f"  {styled(mark, style)}  {_listed(key)}: {columns}")


def _listed(values: Mapping[str, Any]) -> str:
    few = [f"{printable(name)} {_shown(value)}" for name, value in values.items()]
    more = len(few) - _MAX_COLUMNS
    return ", ".join(few[:_MAX_COLUMNS]) + (f" and {number(more)} more" if more > 0 else "")


def _shown(value: object) -> str:
    text = printable("null" if value is None else str(value))
    return text if len(text) <= _MAX_VALUE else f"{text[:_MAX_VALUE]}…"
