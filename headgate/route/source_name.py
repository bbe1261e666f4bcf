"""What a table is called where changes come from."""

from __future__ import annotations

from typing import Protocol


class SourceName(Protocol):
    """A table of the source, as its changes name it."""

    @property
    def database(self) -> str | None: ...
    @property
    def schema(self) -> str | None: ...
    @property
    def table(self) -> str: ...


def placeholder_values(source: SourceName) -> dict[str, str]:
    """What stands for each placeholder; where there is only a database or only a schema, either."""
    return {
        "{database}": source.database or source.schema or "",
        "{schema}": source.schema or source.database or "",
        "{table}": source.table,
    }


def pattern_name(source: SourceName) -> str:
    """The name that the patterns of a pipeline file are about: `database.table`."""
    values = placeholder_values(source)
    return f"{values['{database}']}.{values['{table}']}"
