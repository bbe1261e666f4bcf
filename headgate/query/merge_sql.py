"""The texts of an incremental SELECT, in Spark's SQL."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from headgate.pipeline.sql.dialect import quoted as quoted

if TYPE_CHECKING:
    from headgate.query.states import Incremental


def partial(how: Incremental, source_view: str, extra_keys: Sequence[str]) -> str:
    return _states(how, _from(how, source_view), extra_keys)


def merge(how: Incremental, states_view: str, extra_keys: Sequence[str]) -> str:
    names = [quoted(name) for name in _names(how, extra_keys)]
    merged = [_named(each.merge, each.name) for each in how.states]
    return f"SELECT {', '.join([*names, *merged])}\nFROM {quoted(states_view)}{_group_by(names)}"


def outputs(how: Incremental, states: str, extra_keys: Sequence[str]) -> str:
    """`states` is a view in backticks, or a query in brackets."""
    computed = [_named(each.expression, each.name) for each in how.outputs]
    columns = [*map(quoted, extra_keys), *computed, *map(quoted, how.hidden)]
    return f"SELECT {', '.join(columns)}\nFROM {states}"


def _names(how: Incremental, extra_keys: Sequence[str]) -> list[str]:
    return [*extra_keys, *(each.name for each in how.keys)]


def _states(how: Incremental, rows: str, extra_keys: Sequence[str]) -> str:
    partials = [_named(each.partial, each.name) for each in how.states]
    columns = [*map(quoted, extra_keys), *_key_columns(how), *partials]
    grouped = _group_by([*map(quoted, extra_keys), *(each.expression for each in how.keys)])
    return f"SELECT {', '.join(columns)}\n{rows}{grouped}"


def _key_columns(how: Incremental) -> list[str]:
    return [_named(each.expression, each.name) for each in how.keys]


def _named(expression: str, name: str) -> str:
    return quoted(name) if expression == quoted(name) else f"{expression} AS {quoted(name)}"


def _from(how: Incremental, view: str) -> str:
    where = f"\nWHERE {how.where}" if how.where else ""
    return f"FROM {quoted(view)} AS {quoted(how.source)}{how.laterals}{where}"


def _semi_join(other: str, same: Sequence[str]) -> str:
    """Only rows that have one like them in the other; all, where nothing tells rows apart."""
    return f"\nLEFT SEMI JOIN {other} ON {' AND '.join(same)}" if same else ""


def _group_by(expressions: Iterable[str]) -> str:
    written = ", ".join(expressions)
    return f"\nGROUP BY {written}" if written else ""
