"""The key of a source table, and the columns of its merged table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from headgate.envelopes.datastream.changes import LOG_COLUMN_NAMES
from headgate.schema.conform import nullable
from headgate.schema.names import column_twin, derived_name

_KEY = b"headgate.key"

ROW_ID = "_row_id"
"""The row ID of Oracle: the key of a table that has no primary key."""


@dataclass(frozen=True)
class TableKey:
    """The key columns in order; empty for a table without a key."""

    columns: tuple[str, ...] = ()

    @property
    def by_row_id(self) -> bool:
        return self.columns == (ROW_ID,)

    def __bool__(self) -> bool:
        return bool(self.columns)

    @classmethod
    def from_schema(cls, schema: pa.Schema) -> TableKey:
        """Read the key of a merged table from its field metadata."""
        names = {
            int(field.metadata[_KEY]): field.name
            for field in schema
            if field.metadata and _KEY in field.metadata
        }
        return cls(tuple(names[place] for place in sorted(names)))

    def annotate(self, schema: pa.Schema) -> pa.Schema:
        """Return the schema with the key in its field metadata."""
        fields = []
        for field in schema:
            facts = {key: value for key, value in (field.metadata or {}).items() if key != _KEY}
            if field.name in self.columns:
                facts[_KEY] = str(self.columns.index(field.name)).encode()
            fields.append(field.with_metadata(facts or None))
        return pa.schema(fields)


def newest_key(changes: pa.Table, declared: Sequence[str] | None = None) -> TableKey | None:
    """Return the key that the newest change names; None if no change names one."""
    if declared:
        return TableKey(key_columns(declared, changes.schema))
    if "_primary_keys" in changes.column_names:
        named = changes.select(["_primary_keys", "_order"])
        named = named.filter(pc.greater(pc.list_value_length(named["_primary_keys"]), 0))
        if len(named):
            newest = int(pc.sort_indices(named, [("_order", "descending")])[0].as_py())
            return TableKey(key_columns(named["_primary_keys"][newest].as_py(), changes.schema))
    if ROW_ID in changes.column_names and changes[ROW_ID].null_count < len(changes):
        return TableKey((ROW_ID,))
    return None


def current_key(kept: TableKey | None, named: TableKey | None) -> TableKey:
    """Return the key of a table, given the one it was merged by and the one that changes name.

    Row IDs never replace a key.
    """
    return kept if kept and (not named or named.by_row_id) else named or TableKey()


def key_columns(names: Sequence[str], schema: pa.Schema) -> tuple[str, ...]:
    """Return the columns for the names of a source; empty if any is missing."""
    own = [field.name for field in schema if field.name not in LOG_COLUMN_NAMES]
    by_letters = {name.lower(): name for name in own}
    found = []
    for name in names:
        given = (name, column_twin(name), derived_name(name))
        column = next((one for one in given if one in own), by_letters.get(name.lower()))
        if column is None:
            return ()
        found.append(column)
    return tuple(found)


ORDER = "_order"
MERGED_METADATA = ("_change_type", "_source_timestamp", ORDER)
"""Metadata columns of merged tables, unless the pipeline turns them off."""

APPENDED_METADATA = ("_uuid", "_is_deleted", *MERGED_METADATA)
"""Metadata columns of tables without a key, which keep every change."""

_MERGE_METADATA = frozenset(("_primary_keys", ROW_ID, *APPENDED_METADATA))


def columns_to_merge(log: pa.Schema) -> list[str]:
    """Return the columns of a log that a merge reads: few of its metadata columns."""
    return [name for name in log.names if name not in LOG_COLUMN_NAMES or name in _MERGE_METADATA]


def merged_columns(log: pa.Schema, key: TableKey, metadata: bool) -> pa.Schema:
    """Return the columns of a merged table: those of the source first, then metadata."""
    names = set(MERGED_METADATA if metadata else ())
    if not key:
        names |= set(APPENDED_METADATA)
    if key.by_row_id:
        names.add(ROW_ID)
    own = [field for field in log if field.name not in LOG_COLUMN_NAMES]
    extra = [field for field in log if field.name in names]
    return key.annotate(nullable(pa.schema([*own, *extra])))
