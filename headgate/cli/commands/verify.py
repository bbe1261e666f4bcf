"""`headgate verify`: are merged tables what their change logs say?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headgate.cli.output import (
    Style,
    counted,
    now,
    number,
    print_columns,
    print_json,
    print_next_steps,
    printable,
    styled,
)
from headgate.cli.pipeline_argument import PipelineArgument, find_pipeline

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
    from headgate.cli.pipeline_argument import load_change_pipeline, spark_when_needed

    file = find_pipeline(pipeline)
    declared = load_change_pipeline(file)
    from headgate.cdc.verify import verify as verify_tables

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


_HEADERS = ("TABLE", "ROWS", "MISSING", "TOO MANY", "DIFFERENT", "")
_LONGEST_VALUE = 40
_MOST_COLUMNS = 6


def print_verified(verified: Sequence[TableVerified]) -> None:
    print_columns(_HEADERS, [_row(one) for one in verified], right=_HEADERS[1:5])
    for one in verified:
        if not one.is_well:
            _print_wrong(one)
    total = sum(one.total for one in verified)
    unsure = sum(one.trouble is not None for one in verified)
    told = [f"{counted(total, 'difference')} in {counted(len(verified), 'table')}"]
    told += [f"{counted(unsure, 'table')} could not be verified"] if unsure else []
    print(f"\n{', '.join(told)}")


def trouble_of(one: TableVerified) -> str:
    """`2 rows are missing, 1 row is too many`."""
    found = one.differences
    told = [one.trouble] if one.trouble else []
    if one.absent_columns:
        told.append(f"it lacks {', '.join(one.absent_columns)}")
    if one.other_key is not None:
        key = ", ".join(one.other_key) or "none"
        told.append(f"it was merged by {', '.join(one.key) or 'no key'}, and the key is {key}")
    if found:
        told += [
            f"{counted(amount, 'row')} {is_wrong if amount == 1 else are_wrong}"
            for amount, is_wrong, are_wrong in (
                (found.missing, "is missing", "are missing"),
                (found.too_many, "is too many", "are too many"),
                (found.different, "differs", "differ"),
            )
            if amount
        ]
    return ", ".join(told)


def as_record(one: TableVerified) -> dict[str, object]:
    """All that is known, and whether it is well."""
    return {**{field.name: getattr(one, field.name) for field in fields(one)}, "ok": one.is_well}


def _row(one: TableVerified) -> tuple[str, ...]:
    found = one.differences
    amounts = (found.rows, found.missing, found.too_many, found.different) if found else ()
    return (one.table, *(tuple(map(number, amounts)) or ("-",) * 4), _state(one))


def _state(one: TableVerified) -> str:
    if one.trouble:
        return "not verified"
    if one.left_out:
        return f"left out: {one.left_out}"
    if one.log_version is None:
        return "not merged yet"
    told = "ok" if one.is_well else "wrong"
    return f"{told}, behind its log by {counted(one.behind, 'version')}" if one.behind else told


def _print_wrong(one: TableVerified) -> None:
    print(f"\n{styled(printable(one.table), 'bold')}: {printable(trouble_of(one))}")
    if one.differences:
        _print_examples(one.differences)


def _print_examples(found: RowDifferences) -> None:
    for row in found.missing_rows:
        _print_example("-", "red", row.key, _listed(row.columns))
    for row in found.rows_too_many:
        _print_example("+", "yellow", row.key, _listed(row.columns))
    for different in found.different_rows:
        wrong = {
            name: f"{_shown(value.found)}, should be {_shown(value.should_be)}"
            for name, value in different.columns.items()
        }
        told = "; ".join(f"{name} {text}" for name, text in wrong.items())
        _print_example("~", "cyan", different.key, told)


def _print_example(mark: str, style: Style, key: Mapping[str, Any], told: str) -> None:
    print(f"  {styled(mark, style)}  {_listed(key)}: {told}")


def _listed(values: Mapping[str, Any]) -> str:
    few = [f"{printable(name)} {_shown(value)}" for name, value in values.items()]
    more = len(few) - _MOST_COLUMNS
    return ", ".join(few[:_MOST_COLUMNS]) + (f" and {number(more)} more" if more > 0 else "")


def _shown(value: object) -> str:
    text = printable("null" if value is None else str(value))
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}…"
