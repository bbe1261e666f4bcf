"""Rows in columns: aligned, never cut off unless a terminal is too narrow."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Collection, Sequence

from headgate.cli.styled import printable, styled

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
