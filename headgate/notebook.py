"""Results as tables, in HTML for notebooks and in text for terminals.

Names and payloads come from the stream and may be hostile: every cell is escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from datetime import datetime
from html import escape
from typing import Any, Generic, TypeVar, overload

from headgate.amounts import number

_MAX_ROWS = 200
_MAX_ITEMS = 8
_MAX_TEXT = 160
_MAX_BYTES = 24

_Item = TypeVar("_Item")


class ResultView:
    """Mixin of a dataclass that prints as tables, also in a notebook."""

    def __str__(self) -> str:
        values, lists = _parts(self)
        width = max(map(len, values), default=0)
        lines = [f"{name.ljust(width)}  {text}" for name, text in values.items()]
        tables = [f"\n{name}\n{_text_table(one, len(one))}" for name, one in lists.items()]
        return "\n".join([*lines, *tables])

    def _repr_html_(self) -> str:
        values, lists = _parts(self)
        lines = "".join(
            f"<tr><th>{_escaped(name)}</th><td>{_escaped(text)}</td></tr>"
            for name, text in values.items()
        )
        tables = [_html_table(one, len(one), name) for name, one in lists.items()]
        return "\n".join([f"<table><tbody>{lines}</tbody></table>", *tables])


@dataclass(frozen=True, repr=False)
class Rows(Sequence[_Item], Generic[_Item]):
    """A frozen sequence of dataclasses, which prints as a table."""

    items: tuple[_Item, ...]
    total: int
    """Number of items that there are; more than `len` if a limit was given."""

    @classmethod
    def of(cls, items: Iterable[_Item], total: int | None = None) -> Rows[_Item]:
        taken = tuple(items)
        return cls(taken, len(taken) if total is None else total)

    def __len__(self) -> int:
        return len(self.items)

    @overload
    def __getitem__(self, index: int) -> _Item: ...
    @overload
    def __getitem__(self, index: slice) -> Rows[_Item]: ...
    def __getitem__(self, index: int | slice) -> _Item | Rows[_Item]:
        if isinstance(index, slice):
            return Rows(self.items[index], self.total)
        return self.items[index]

    def __repr__(self) -> str:
        return _text_table(self.items, self.total)

    def _repr_html_(self) -> str:
        return _html_table(self.items, self.total)


def cell(value: object) -> str:
    """Return a value as one line of printable text of limited length."""
    match value:
        case None:
            text = ""
        case bool():
            text = "yes" if value else ""
        case str():
            text = str(value)
        case int() | float():
            text = f"{value:,}"
        case bytes():
            more = f"… ({number(len(value))} bytes)" if len(value) > _MAX_BYTES else ""
            text = value[:_MAX_BYTES].hex(" ") + more
        case datetime():
            text = value.isoformat(" ", "seconds")
        case Mapping():
            text = _joined([f"{cell(key)} {cell(one)}" for key, one in value.items()])
        case Sequence() | frozenset():
            text = _joined([cell(one) for one in value])
        case _ if is_dataclass(value) and type(value).__str__ is object.__str__:
            text = _cell_of_dataclass(value)
        case _:
            text = str(value)
    printable = "".join(one if one.isprintable() else repr(one)[1:-1] for one in text)
    return printable if len(printable) <= _MAX_TEXT else f"{printable[:_MAX_TEXT]}…"


def _cell_of_dataclass(value: Any) -> str:
    text = getattr(value, "text", None)
    if isinstance(text, str):
        return text
    cells = [(_title(one.name), cell(getattr(value, one.name))) for one in fields(value)]
    return ", ".join(f"{name} {text}" for name, text in cells if text)


def _joined(items: Sequence[str]) -> str:
    more = [f"… {number(len(items) - _MAX_ITEMS)} more"] if len(items) > _MAX_ITEMS else []
    return ", ".join([*items[:_MAX_ITEMS], *more])


def _parts(value: Any) -> tuple[dict[str, str], dict[str, Sequence[object]]]:
    """Return the values of a dataclass that fit in a cell, and those that are tables."""
    values = {_title(field.name): getattr(value, field.name) for field in fields(value)}
    lists = {name: one for name, one in values.items() if _is_table(one)}
    cells = {name: cell(one) for name, one in values.items() if name not in lists}
    return {name: text for name, text in cells.items() if text}, lists


def _is_table(value: object) -> bool:
    return isinstance(value, tuple) and bool(value) and all(map(is_dataclass, value))


def _text_table(items: Sequence[object], total: int) -> str:
    headers, cells = _columns(items[:_MAX_ROWS])
    widths = [max(map(len, column)) for column in zip(headers, *cells, strict=True)]
    lines = [
        "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()
        for line in (headers, *cells)
    ]
    return "\n".join([*lines, *_left_out(len(cells), total)]).strip() or "nothing"


def _html_table(items: Sequence[object], total: int, caption: str | None = None) -> str:
    headers, cells = _columns(items[:_MAX_ROWS])
    head = "".join(f"<th>{_escaped(one)}</th>" for one in headers)
    body = "".join(
        f"<tr>{''.join(f'<td>{_escaped(one)}</td>' for one in line)}</tr>" for line in cells
    )
    title = f"<caption>{_escaped(caption)}</caption>" if caption else ""
    more = "".join(f"<p>{_escaped(line)}</p>" for line in _left_out(len(cells), total))
    return f"<table>{title}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def _columns(items: Sequence[Any]) -> tuple[list[str], list[list[str]]]:
    """Return headers and cells, without the columns that are empty in every row."""
    names = [field.name for field in fields(items[0])] if items else []
    cells = [[cell(getattr(item, name)) for name in names] for item in items]
    used = [at for at in range(len(names)) if any(line[at] for line in cells)]
    return [_title(names[at]) for at in used], [[line[at] for at in used] for line in cells]


def _left_out(shown: int, total: int) -> list[str]:
    return [f"{number(shown)} of {number(total)}"] if shown < total else []


def _title(name: str) -> str:
    return name.replace("_", " ")


def _escaped(text: str) -> str:
    return escape(text, quote=True)
