"""What a change of schema does, said once for all tables or by pattern for some."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from fnmatch import fnmatchcase
from functools import cache
from typing import Annotated

from pydantic import BeforeValidator, Field

from headgate.config.model import Declared
from headgate.config.units import Size
from headgate.errors import InvalidPipeline, did_you_mean, listed, shown


class Mode(StrEnum):
    """What is done about something that a table does not have yet."""

    EVOLVE = "evolve"
    """The table follows."""
    FREEZE = "freeze"
    """The table stays, and every record of the schema that asked goes to the quarantine."""
    DISCARD_ROW = "discard_row"
    """The table stays, and records that carry such a value go to the quarantine."""
    DISCARD_VALUE = "discard_value"
    """The table stays, and records land without the value; the ledger counts them."""


class UnknownFields(StrEnum):
    """What becomes of a protobuf payload with fields that its own schema does not have."""

    QUARANTINE = "quarantine"
    """The record goes to the quarantine: its schema, its message or its bytes are wrong."""
    KEEP = "keep"
    """The record lands, with the bytes of those fields in `_unknown_fields`."""
    IGNORE = "ignore"
    """The record lands without them; the ledger counts such rows."""


WORDS_OF_OTHERS = {
    "merge": "`merge` is called `evolve` here",
    "none": "`none` is called `freeze` here",
    "overwrite": "tables never lose columns here: `evolve` keeps dropped columns, null in new rows",
}
"""What other tools call their strategies, and the nearest equivalent."""


def _refuse_words_of_others(written: object) -> object:
    if isinstance(written, str) and written in WORDS_OF_OTHERS:
        message = f"cannot be {shown(written)}"
        raise InvalidPipeline("bad-choice", message, WORDS_OF_OTHERS[written])
    return written


_Word = Annotated[Mode, BeforeValidator(_refuse_words_of_others)]


def _expand(written: object) -> object:
    """`contract: freeze` is short for the same about tables, columns and types."""
    if not isinstance(written, str):
        return written
    _refuse_words_of_others(written)
    modes = [mode.value for mode in Mode]
    if written not in modes:
        hint = did_you_mean(written, modes) or f"use one of {listed(modes)}"
        raise InvalidPipeline("bad-choice", f"cannot be {shown(written)}", hint)
    return dict.fromkeys(("tables", "columns", "types"), written)


class Rules(Declared):
    """The contract of one table."""

    tables: _Word = Mode.EVOLVE
    """Whether a new route makes a table."""

    columns: _Word = Mode.EVOLVE
    """Whether a new field makes a column, or a field inside one."""

    types: _Word = Mode.EVOLVE
    """Whether a field of another type widens its column, or gets one of its own."""

    unknown_fields: UnknownFields = UnknownFields.QUARANTINE
    """What becomes of protobuf records with fields that their own schema does not have:
    `quarantine`, `keep` (they land, with the bytes in `_unknown_fields`) or `ignore` (they land
    without them)."""

    @property
    def strict(self) -> bool:
        """Whether there is anything that the table does not follow."""
        return (self.columns, self.types) != (Mode.EVOLVE, Mode.EVOLVE)


class TableRules(Declared):
    """What some tables have otherwise; what is left out is as for all."""

    tables: _Word | None = None
    """Whether a new route makes a table."""

    columns: _Word | None = None
    """Whether a new field makes a column, or a field inside one."""

    types: _Word | None = None
    """Whether a field of another type widens its column, or gets one of its own."""

    unknown_fields: UnknownFields | None = None
    """What becomes of protobuf records with fields that their own schema does not have."""


class Contract(Rules):
    """What changes of schemas do.

        Contract(columns="freeze", per_table={"silver_test_*": "evolve"})

    A single word stands for tables, columns and types alike.
    """

    per_table: Mapping[str, Annotated[TableRules, BeforeValidator(_expand)]] = Field(
        default_factory=dict, examples=[{"silver_chess*": "freeze"}]
    )
    """Other rules for the tables whose names match; of several patterns, the first that does."""

    rewrite_up_to: Size = Size.parse("1 GB")
    """The largest table that is rewritten to widen a column; beyond it, the larger values get a
    column of their own."""

    def for_table(self, table: str) -> Rules:
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
    """Cache the few that differ: they are asked for with each group of records of each batch."""
    return Rules(tables=tables, columns=columns, types=types, unknown_fields=unknown_fields)


ContractField = Annotated[Contract, BeforeValidator(_expand, json_schema_input_type=Contract | str)]
