"""`headgate verify`: compare tables with the ledger, and with their change logs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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
    spark_when_needed,
)

if TYPE_CHECKING:
    from headgate.cdc.compare import RowDifferences
    from headgate.cdc.verify import TableVerified
    from headgate.inspect.landed_rows import LandedRows
    from headgate.inspect.verify import Verified


def verify(
    pipeline: PipelineArgument = None,
    tables: Annotated[
        list[str] | None,
        typer.Option(
            "--table",
            metavar="T",
            help="A landed or merged table, a route, or a source table as database.table; repeat "
            "for several; all if none is given.",
            show_default=False,
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Compare tables with the ledger, and with their change logs.

    \b
    Examples:
      headgate verify games.yaml
      headgate verify shop.yaml --table shop_orders --table shop.visits

    Counts the rows of each landed table and compares them with those that have landed. Where
    rows are missing or extra, the commits of others that explain it are listed: a DELETE, a
    RESTORE, an overwrite, an OPTIMIZE that doubled rows.

    Recomputes merged and history tables of change files from their logs, up to the last change
    that they have merged, and reports rows that are missing (-), extra (+) or different (~).
    Being behind the log is not a difference.

    Writes nothing. Exits with 1 if it finds a difference.

    Next: headgate rewind PIPELINE --table T --to WHEN recreates rows of a merged table
    """
    from headgate.config import load_pipeline
    from headgate.inspect.verify import read_verified

    file = find_pipeline(pipeline)
    declared = load_pipeline(file)
    with spark_when_needed(declared) as spark:
        verified = read_verified(declared, tables or (), spark=spark)
    if as_json:
        _print_json(verified)
    elif not verified:
        print("Nothing to verify: nothing has landed yet")
        print_next_steps([(f"headgate run {file} --once", "land what the source has")])
    else:
        _print_landed(declared.lake, verified.landed)
        if verified.merged:
            print()
            print_verified(verified.merged)
        wrong = [table.table for table in verified.merged if not table.is_ok]
        if wrong:
            when = f"{now():%Y-%m-%dT%H:%M:%S}"
            command = f"headgate rewind {file} --table {wrong[0]} --to {when}"
            print_next_steps([(command, "create a table with the correct rows")])
    if not verified.is_ok:
        raise typer.Exit(1)


def _print_json(verified: Verified) -> None:
    found = {
        "differences": sum(table.total for table in verified.merged),
        "landed": [landed_as_record(table) for table in verified.landed],
        "tables": [as_record(table) for table in verified.merged],
    }
    wrong = [
        *((table.table, table.problem) for table in verified.landed if not table.is_ok),
        *((table.table, problems_of(table)) for table in verified.merged if not table.is_ok),
    ]
    print_json(found, errors=[{"table": table, "message": message} for table, message in wrong])


def landed_as_record(table: LandedRows) -> dict[str, object]:
    """Return all fields for JSON, with the number of rows that are missing or extra."""
    return {
        **{field.name: getattr(table, field.name) for field in fields(table)},
        "missing": table.missing,
        "extra": table.extra,
        "problem": table.problem,
        "ok": table.is_ok,
    }


_LANDED_HEADERS = ("TABLE", "LANDED", "FOUND", "MISSING", "EXTRA")


def _print_landed(lake: str, tables: Sequence[LandedRows]) -> None:
    """Print the landed tables that are wrong, each with what happened and what to do."""
    wrong = [table for table in tables if not table.is_ok]
    if wrong:
        rows = [(table.table, number(table.landed), *_found(table)) for table in wrong]
        print_columns(_LANDED_HEADERS, rows, right=_LANDED_HEADERS[1:])
        for table in wrong:
            _print_wrong_rows(lake, table)
        print()
    landed = counted(sum(table.landed for table in tables), "landed row")
    differ = f"{number(len(wrong))} of {counted(len(tables), 'landed table')}"
    summary = f"differences in {differ}" if wrong else f"all in {counted(len(tables), 'table')}"
    print(f"{landed}: {summary}")


def _found(table: LandedRows) -> Sequence[str]:
    if table.found is None:
        return ("-",) * 3
    return [number(rows) for rows in (table.found, table.missing, table.extra)]


def _print_wrong_rows(lake: str, table: LandedRows) -> None:
    print(f"\n{styled(printable(table.table), 'bold')}: {printable(table.problem or '')}")
    if table.created_again is not None:
        print(f"  {table.created_again:%Y-%m-%d %H:%M:%S} UTC: somebody created the table again")
    for commit in table.commits[:_MAX_COMMITS]:
        print(f"  {commit.at:%Y-%m-%d %H:%M:%S} UTC: {printable(commit.text)}")
    if len(table.commits) > _MAX_COMMITS:
        print(f"  and {counted(len(table.commits) - _MAX_COMMITS, 'earlier commit')}")
    for line in _advice(lake, table):
        print(f"  {printable(line)}")


_MAX_COMMITS = 5


def _advice(lake: str, table: LandedRows) -> Iterator[str]:
    if table.trouble is not None or table.is_behind:
        yield "Restore the newest copy of the table, or the whole lake from the same time."
        return
    before = min((commit.version for commit in table.commits), default=0) - 1
    if before < 0:
        if table.created_again is None and not table.commits:
            yield "Its log has no commit of others that explains it: entries of older ones expire."
        yield "Restore the table from a backup, or leave it so: Headgate continues to land."
        return
    if not table.is_explained:
        yield "The entries that its log still has do not explain all of it."
    if table.landed_since:
        later = counted(table.landed_since, "later commit")
        yield f"RESTORE would undo {later} of landed rows, too. The rows from before are in"
        yield _restored(lake, table, before)[0]
    else:
        yield f"To undo it: {_restored(lake, table, before)[1]}"
    yield "If it was intended, leave it so: Headgate continues to land, and verify to report it."


def _restored(lake: str, table: LandedRows, version: int) -> tuple[str, str]:
    """Return SQL that names the version of a table, and SQL that restores it."""
    path = f"delta.`{lake}/{table.table}`"
    return f"{path} VERSION AS OF {version}", f"RESTORE TABLE {path} TO VERSION AS OF {version}"


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
