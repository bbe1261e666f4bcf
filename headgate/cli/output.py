"""How much, how long and how long ago, in words."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, TextIO

_UNITS = (("day", 86_400), ("hour", 3_600), ("minute", 60), ("second", 1))
_SIZES = ("kB", "MB", "GB", "TB")


def number(amount: float) -> str:
    return f"{amount:,.0f}"


def counted(amount: int, thing: str, things: str | None = None) -> str:
    """`1 table`, `2 tables`."""
    return f"{number(amount)} {thing if amount == 1 else things or f'{thing}s'}"


def lasted(seconds: float) -> str:
    """`0.42 s`, `12 s`, `3 min 20 s`, `2 h 5 min`."""
    if seconds < 10:
        return f"{seconds:.2f} s" if seconds < 1 else f"{seconds:.1f} s"
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def now() -> datetime:
    return datetime.now(UTC)


def ago(moment: datetime) -> str:
    """`just now`, `40 seconds ago`, `2 hours ago`."""
    seconds = (now() - moment).total_seconds()
    for unit, length in _UNITS:
        if seconds >= length:
            return f"{counted(int(seconds // length), unit)} ago"
    return "just now"


def rate(records: int, seconds: float) -> str:
    return f"{number(records / seconds)} records/s" if seconds > 0 else "-"


def size(amount: int) -> str:
    """`512 bytes`, `4.2 MB`."""
    if amount < 1000:
        return counted(amount, "byte")
    power = min((len(str(amount)) - 1) // 3, len(_SIZES))
    return f"{amount / 1000**power:.1f} {_SIZES[power - 1]}"


Style = Literal["bold", "dim", "red", "green", "yellow", "cyan"]

_CODES: dict[Style, int] = {
    "bold": 1,
    "dim": 2,
    "red": 31,
    "green": 32,
    "yellow": 33,
    "cyan": 36,
}


def has_colour(stream: TextIO) -> bool:
    """Whether the stream is a terminal whose user has nothing against colour."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def styled(text: str, style: Style, stream: TextIO | None = None) -> str:
    stream = stream or sys.stdout
    return f"\x1b[{_CODES[style]}m{text}\x1b[0m" if has_colour(stream) else text


def printable(text: str) -> str:
    """Text from a message, without anything that a terminal would obey."""
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in text
    )


_BETWEEN = "  "


def print_columns(
    headers: Sequence[str], rows: Sequence[Sequence[str]], right: Collection[str] = ()
) -> None:
    """A heading and the rows below it; columns named in `right` hold numbers."""
    rows = [[printable(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(headers, *rows, strict=True)]
    rightward = [header in right for header in headers]
    print(styled(_fit(_line(headers, widths, rightward)), "dim"))
    for row in rows:
        print(_fit(_line(row, widths, rightward)))


def print_facts(facts: Sequence[tuple[str, str]]) -> None:
    """A name and what it is, one below the other."""
    width = max(len(name) for name, _ in facts)
    for name, value in facts:
        print(f"  {styled(name.ljust(width), 'dim')}  {value}".rstrip())


def _line(cells: Sequence[str], widths: Sequence[int], rightward: Sequence[bool]) -> str:
    padded = (
        cell.rjust(width) if right else cell.ljust(width)
        for cell, width, right in zip(cells, widths, rightward, strict=True)
    )
    return _BETWEEN.join(padded).rstrip()


def _fit(line: str) -> str:
    if not sys.stdout.isatty():
        return line
    room = shutil.get_terminal_size().columns
    return line if len(line) <= room else f"{line[: room - 1]}…"


def print_json(data: object, errors: Sequence[object] = ()) -> None:
    """What was found and, if that is not well, what is wrong with it."""
    envelope: dict[str, object] = {"ok": not errors}
    if errors:
        envelope["errors"] = plain(errors)
    envelope["data"] = plain(data)
    print(json.dumps(envelope, indent=2, ensure_ascii=False))


def print_json_line(record: Mapping[str, object]) -> None:
    print(json.dumps(plain(record), ensure_ascii=False), flush=True)


def plain(value: object) -> Any:
    """A value as JSON can hold it: times in ISO format, bytes in base64."""
    match value:
        case None | bool() | int() | float():
            return value
        case str():
            return str(value)
        case datetime():
            return value.isoformat()
        case bytes():
            return base64.b64encode(value).decode()
        case Path():
            return str(value)
        case Mapping():
            return {str(key): plain(each) for key, each in value.items()}
        case set() | frozenset():
            return sorted(plain(each) for each in value)
        case list() | tuple():
            return [plain(each) for each in value]
        case _ if is_dataclass(value):
            return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
        case _:
            return str(value)


def print_next_steps(steps: Sequence[tuple[str, str]]) -> None:
    """Commands, each with what it does, as they can be typed here."""
    me = command_here(sys.argv[0], shutil.which("headgate"))
    typed = [(re.sub("^headgate ", f"{me} ", command), purpose) for command, purpose in steps]
    width = max(len(command) for command, _ in typed)
    print("\nNext:")
    for command, purpose in typed:
        print(f"  {styled(command.ljust(width), 'green')}  {purpose}")


def command_here(called: str, on_path: str | None) -> str:
    """`headgate`, unless that is not on the PATH: then the way it was called."""
    if on_path is not None or os.path.basename(called) != "headgate":
        return "headgate"
    shorter = os.path.relpath(called)
    return called if shorter.startswith("..") else shorter
