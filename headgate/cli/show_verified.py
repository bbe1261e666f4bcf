"""How tables compare with their logs, as a person reads it: a line each, then what is wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from headgate.cli.amounts import counted, number
from headgate.cli.styled import Style, printable, styled
from headgate.cli.text_columns import print_columns

if TYPE_CHECKING:
    from headgate.change.compare_rows import RowDifferences
    from headgate.run.verify import TableVerified

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
