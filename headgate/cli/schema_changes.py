"""Changes of schemas as a person reads them, with a mark before each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from headgate.cli.output import Style, printable, styled
from headgate.schema.changes import AddColumn, CreateTable, Outcome, SchemaChange

Mark = Literal["+", "~", "!"]
_STYLES: dict[Mark, Style] = {"+": "green", "~": "yellow", "!": "red"}


def mark_of(change: SchemaChange) -> Mark:
    """`+` for what is added, `~` for what only differs, `!` for what someone should look at."""
    if change.breaking or change.outcome is not Outcome.APPLIED:
        return "!"
    return "+" if isinstance(change, AddColumn | CreateTable) else "~"


def print_changes(changes: Sequence[tuple[SchemaChange, str]], headed: bool = False) -> None:
    """Each with its outcome, and a note where there is one."""
    texts = [printable(str(change).removeprefix("+ ")) for change, _ in changes]
    width = max(map(len, ["CHANGE", *texts]))
    if headed:
        print(styled(f"     {'CHANGE'.ljust(width)}  OUTCOME", "dim"))
    for (change, note), text in zip(changes, texts, strict=True):
        mark = mark_of(change)
        after = f"{change.outcome}, {note}" if note else str(change.outcome)
        print(f"  {styled(mark, _STYLES[mark])}  {text.ljust(width)}  {after}")
