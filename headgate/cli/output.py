"""Printing: text and tables for people, JSON for programs, errors, and the next commands to run."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal, TextIO

import typer

from headgate.amounts import counted
from headgate.as_json import escaped, json_text, plain
from headgate.errors import HeadgateError, UsageError

if TYPE_CHECKING:
    import pyarrow as pa

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Style = Literal["bold", "dim", "red", "green", "yellow", "cyan"]

_CODES: dict[Style, int] = {
    "bold": 1,
    "dim": 2,
    "red": 31,
    "green": 32,
    "yellow": 33,
    "cyan": 36,
}
_UNITS = (("day", 86_400), ("hour", 3_600), ("minute", 60), ("second", 1))
_COLUMN_GAP = "  "


def has_colour(stream: TextIO) -> bool:
    """Return whether the stream is a terminal and colour is not disabled."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def styled(text: str, style: Style, stream: TextIO | None = None) -> str:
    stream = stream or sys.stdout
    return f"\x1b[{_CODES[style]}m{text}\x1b[0m" if has_colour(stream) else text


def printable(text: str) -> str:
    """Escape control characters, so that text from a message cannot drive the terminal."""
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in text
    )


def _printable_lines(text: str) -> str:
    return "\n".join(map(printable, text.split("\n")))


def now() -> datetime:
    return datetime.now(UTC)


def ago(time: datetime) -> str:
    """`just now`, `40 seconds ago`, `2 hours ago`."""
    seconds = (now() - time).total_seconds()
    for unit, length in _UNITS:
        if seconds >= length:
            return f"{counted(int(seconds // length), unit)} ago"
    return "just now"


def print_columns(
    headers: Sequence[str], rows: Sequence[Sequence[str]], right: Collection[str] = ()
) -> None:
    """Print a table; columns named in `right` are aligned to the right."""
    align_right = [header in right for header in headers]
    headers = [printable(header) for header in headers]
    rows = [[printable(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(headers, *rows, strict=True)]
    print(styled(_fit(_line(headers, widths, align_right)), "dim"))
    for row in rows:
        print(_fit(_line(row, widths, align_right)))


def print_facts(facts: Sequence[tuple[str, str]]) -> None:
    """Print names and values, one pair per line."""
    width = max(len(name) for name, _ in facts)
    for name, value in facts:
        print(f"  {styled(name.ljust(width), 'dim')}  {value}".rstrip())


def _line(cells: Sequence[str], widths: Sequence[int], align_right: Sequence[bool]) -> str:
    padded = (
        cell.rjust(width) if right else cell.ljust(width)
        for cell, width, right in zip(cells, widths, align_right, strict=True)
    )
    return _COLUMN_GAP.join(padded).rstrip()


def _fit(line: str) -> str:
    """Cut a line at the edge of the terminal; leave it whole in a file or pipe."""
    if not sys.stdout.isatty():
        return line
    room = shutil.get_terminal_size().columns
    return line if len(line) <= room else f"{line[: room - 1]}…"


def print_json(data: object, errors: Sequence[object] = ()) -> None:
    """Print the result and, if something is wrong with it, the errors."""
    envelope: dict[str, object] = {"ok": not errors}
    if errors:
        envelope["errors"] = plain(errors)
    envelope["data"] = plain(data)
    print(escaped(json.dumps(envelope, indent=2, ensure_ascii=False)))


def print_json_line(record: Mapping[str, object]) -> None:
    print(json_text(record), flush=True)


@dataclass(frozen=True)
class ShownError:
    """The parts of an error that are shown."""

    code: str
    message: str
    hint: str | None = None
    where: str | None = None


def shown_errors(error: HeadgateError) -> list[ShownError]:
    """Return every finding of an invalid pipeline file, or the error itself."""
    findings = getattr(error, "findings", ())
    if findings:
        return [ShownError(each.code, each.message, each.hint, each.where) for each in findings]
    return [ShownError(error.code, error.message, error.hint, error.where)]


def show_errors(errors: Sequence[ShownError], as_json: bool) -> None:
    """Print errors to standard error, or as JSON to standard output."""
    if as_json:
        listed = [
            {"code": each.code, "message": each.message, "hint": each.hint, "where": each.where}
            for each in errors
        ]
        print(json_text({"ok": False, "errors": listed}))
        return
    for each in errors:
        error, hint = styled("error:", "red", sys.stderr), styled("hint:", "cyan", sys.stderr)
        print(f"{error} {_printable_lines(each.message)} [{each.code}]", file=sys.stderr)
        if each.where:
            print(f"  at {each.where}", file=sys.stderr)
        if each.hint:
            print(f"{hint} {_printable_lines(each.hint)}", file=sys.stderr)


def require_prompt(what: str, as_json: bool) -> None:
    """Raise unless a person can be asked for confirmation of what a command does."""
    if as_json or not sys.stdin.isatty():
        raise UsageError(
            "bad-argument",
            "cannot prompt: stdin is not a terminal",
            hint=f"use --yes to {what} without confirmation",
        )


def print_next_steps(steps: Sequence[tuple[str, str]]) -> None:
    """Print commands to run next, as they can be typed here, and what each does."""
    me = command_here(sys.argv[0], shutil.which("headgate"))
    typed = [(re.sub("^headgate ", f"{me} ", command), purpose) for command, purpose in steps]
    width = max(len(command) for command, _ in typed)
    print("\nNext:")
    for command, purpose in typed:
        print(f"  {styled(command.ljust(width), 'green')}  {purpose}")


def command_here(called: str, on_path: str | None) -> str:
    """Return `headgate`, or the path it was called by if it is not on the PATH."""
    if on_path is not None or os.path.basename(called) != "headgate":
        return "headgate"
    shorter = os.path.relpath(called)
    return called if shorter.startswith("..") else shorter


def print_rows(rows: pa.Table, as_json: bool) -> None:
    """Print the rows of a query as columns, or as JSON lines."""
    from headgate.lake.query import python_rows

    records = python_rows(rows)
    if as_json:
        for record in records:
            print_json_line(record)
        return
    print_columns(rows.column_names, [list(map(cell, record.values())) for record in records])
    print(f"\n{counted(len(records), 'row')}")


def cell(value: Any) -> str:
    return "" if value is None else printable(str(plain(value)))
