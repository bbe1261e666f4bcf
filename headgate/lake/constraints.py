"""Constraints of a table: what its writer has to check or compute when it adds rows."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

_CHECK = "delta.constraints."
_COMPUTED = {
    "delta.generationExpression": "the generated column",
    "delta.identity.start": "the identity column",
    "CURRENT_DEFAULT": "the default of column",
}
"""Kinds of columns that Delta computes for rows without a value, by their metadata."""


@dataclass(frozen=True)
class Constraints:
    """What rows of a table must fulfil; adding files to the log checks and computes nothing."""

    checked: tuple[str, ...] = ()
    """What a writer checks, in words."""
    computed: Mapping[str, str] = field(default_factory=dict)
    """Columns that a writer computes, each with a description."""
    append_only: bool = False
    """Whether rows may only be added."""

    @property
    def allow_rewrite(self) -> bool:
        """Whether all rows may be written again, with new metadata of the columns."""
        return not self and not self.append_only

    def __bool__(self) -> bool:
        return bool(self.checked or self.computed)

    def __str__(self) -> str:
        return ", ".join((*self.checked, *self.computed.values()))

    @classmethod
    def of(cls, properties: Mapping[str, str], schema: Mapping[str, Any]) -> Constraints:
        """Read them from the table's properties, and its schema as in the log.

        They are in force whatever the protocol lists: tables before writer version 7 have no
        features, and a listed feature may be unused.
        """
        checks = [key.removeprefix(_CHECK) for key in properties if key.startswith(_CHECK)]
        return cls(
            (*(f"the CHECK constraint {name}" for name in sorted(checks)), *_checked(schema)),
            dict(_computed(schema)),
            properties.get("delta.appendOnly", "").lower() == "true",
        )


def constraints_in(schema_json: str) -> bool:
    """Whether a schema, as in the log, has columns with constraints."""
    return any(True for _ in _checked(constrained_columns(schema_json)))


def constrained_columns(schema_json: str) -> Mapping[str, Any]:
    """Parse a schema for its constraints; one without any is not parsed, which takes long."""
    parsed: Mapping[str, Any] = {}
    if _CONSTRAINED.search(schema_json):
        parsed = json.loads(schema_json)
    return parsed


_CONSTRAINED = re.compile(
    r'"nullable"\s*:\s*false|'
    + "|".join(re.escape(f'"{key}"') for key in ("delta.invariants", *_COMPUTED))
)


def _checked(schema: Mapping[str, Any]) -> Iterator[str]:
    for path, column in _columns(schema, ()):
        if "delta.invariants" in column.get("metadata", {}):
            yield f"the invariant of column {'.'.join(path)}"
        if not column.get("nullable", True):
            yield f"the NOT NULL column {'.'.join(path)}"


def _computed(schema: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for column in schema.get("fields", ()):
        for key, kind in _COMPUTED.items():
            if key in column.get("metadata", {}):
                yield column["name"], f"{kind} {column['name']}"


_Path = tuple[str, ...]


def _columns(struct: Mapping[str, Any], path: _Path) -> Iterator[tuple[_Path, Mapping[str, Any]]]:
    """Yield the fields of a struct and of all structs inside, each with its path."""
    for column in struct.get("fields", ()):
        here = (*path, column["name"])
        yield here, column
        yield from _columns_inside(column["type"], here)


def _columns_inside(
    kind: str | Mapping[str, Any], path: _Path
) -> Iterator[tuple[_Path, Mapping[str, Any]]]:
    if isinstance(kind, str):
        return
    yield from _columns(kind, path)
    for key in ("elementType", "keyType", "valueType"):
        yield from _columns_inside(kind.get(key, ""), path)
