"""The contract: what happens when a schema changes, for all tables or by name pattern."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from fnmatch import fnmatchcase
from functools import cache
from typing import Annotated

from pydantic import BeforeValidator, Field

from headgate.config.model import ConfigModel
from headgate.config.units import Size
from headgate.errors import InvalidPipeline, did_you_mean, listed, shown


class Mode(StrEnum):
    """What to do with something that a table does not have yet."""

    EVOLVE = "evolve"
    """Change the table to match."""
    FREEZE = "freeze"
    """Keep the table; every record of the new schema goes to the quarantine."""
    DISCARD_ROW = "discard_row"
    """Keep the table; records that carry such a value go to the quarantine."""
    DISCARD_VALUE = "discard_value"
    """Keep the table; records land without the value, and the ledger counts them."""


class UnknownFields(StrEnum):
    """What to do with a protobuf payload that has fields its schema does not define."""

    QUARANTINE = "quarantine"
    """Quarantine the record: its schema, its message or its bytes are wrong."""
    KEEP = "keep"
    """Land the record, with the bytes of those fields in `_unknown_fields`."""
    IGNORE = "ignore"
    """Land the record without them; the ledger counts such rows."""


OTHER_TOOLS_MODES = {
    "merge": "`merge` is called `evolve` here",
    "none": "`none` is called `freeze` here",
    "overwrite": "tables never lose columns here: `evolve` keeps dropped columns, null in new rows",
}
"""Modes of other tools, with a hint at the equivalent here."""


def _reject_other_tools_modes(written: object) -> object:
    if isinstance(written, str) and written in OTHER_TOOLS_MODES:
        message = f"cannot be {shown(written)}"
        raise InvalidPipeline("bad-choice", message, OTHER_TOOLS_MODES[written])
    return written


_ModeField = Annotated[Mode, BeforeValidator(_reject_other_tools_modes)]


def _expand(written: object) -> object:
    """Expand `contract: freeze` to the same mode for tables, columns and types."""
    if not isinstance(written, str):
        return written
    _reject_other_tools_modes(written)
    modes = [mode.value for mode in Mode]
    if written not in modes:
        hint = did_you_mean(written, modes) or f"use one of {listed(modes)}"
        raise InvalidPipeline("bad-choice", f"cannot be {shown(written)}", hint)
    return dict.fromkeys(("tables", "columns", "types"), written)


class Rules(ConfigModel):
    """The contract of one table."""

    tables: _ModeField = Mode.EVOLVE
    """What a new route does: `evolve` creates a table."""

    columns: _ModeField = Mode.EVOLVE
    """What a new field does: `evolve` adds a column, or a field of a nested column."""

    types: _ModeField = Mode.EVOLVE
    """What a changed type does: `evolve` widens the column, or adds a second column for values of
    the new type."""

    unknown_fields: UnknownFields = UnknownFields.QUARANTINE
    """What to do with protobuf records that have fields their schema does not define:
    `quarantine`, `keep` (land them, with the bytes in `_unknown_fields`) or `ignore` (land them
    without the fields)."""

    @property
    def strict(self) -> bool:
        """Whether some change of columns or types is not applied to the table."""
        return (self.columns, self.types) != (Mode.EVOLVE, Mode.EVOLVE)


class TableRules(ConfigModel):
    """Overrides of the contract for some tables; omitted keys keep the general rule."""

    tables: _ModeField | None = None
    """What a new route does."""

    columns: _ModeField | None = None
    """What a new field does."""

    types: _ModeField | None = None
    """What a changed type does."""

    unknown_fields: UnknownFields | None = None
    """What to do with protobuf records that have fields their schema does not define."""


class Contract(Rules):
    """What happens when schemas change.

        Contract(columns="freeze", per_table={"silver_test_*": "evolve"})

    A single mode applies to tables, columns and types.
    """

    per_table: Mapping[str, Annotated[TableRules, BeforeValidator(_expand)]] = Field(
        default_factory=dict, examples=[{"silver_chess*": "freeze"}]
    )
    """Overrides by table name pattern; the first matching pattern applies."""

    rewrite_up_to: Size = Size.parse("1 GB")
    """Maximum size of a table that is rewritten to widen a column. In larger tables, values of the
    wider type go to a second column."""

    def for_table(self, table: str) -> Rules:
        """Return the rules for a table, with the overrides of the first matching pattern."""
        for pattern, own in self.per_table.items():
            if fnmatchcase(table, pattern):
                return _rules(
                    own.tables or self.tables,
                    own.columns or self.columns,
                    own.types or self.types,
                    own.unknown_fields or self.unknown_fields,
                )
        return _rules(self.tables, self.columns, self.types, self.unknown_fields)


@cache
def _rules(tables: Mode, columns: Mode, types: Mode, unknown_fields: UnknownFields) -> Rules:
    """Return cached rules: they are looked up for every group of records of every batch."""
    return Rules(tables=tables, columns=columns, types=types, unknown_fields=unknown_fields)


ContractField = Annotated[Contract, BeforeValidator(_expand, json_schema_input_type=Contract | str)]
