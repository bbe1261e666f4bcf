"""What tells the rows of a source table apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from headgate.envelopes.datastream.changes import LOG_COLUMN_NAMES
from headgate.schema.names import derived_name

_KEY = b"headgate.key"

ROW_ID = "_row_id"
"""Oracle's own name for a row: the key of a table that has none."""


@dataclass(frozen=True)
class TableKey:
    """The key's columns in order; none for a table whose rows nothing tells apart."""

    columns: tuple[str, ...] = ()

    @property
    def by_row_id(self) -> bool:
        return self.columns == (ROW_ID,)

    def __bool__(self) -> bool:
        return bool(self.columns)

    @classmethod
    def from_schema(cls, schema: pa.Schema) -> TableKey:
        """The key that a merged table was made with: its columns remember it."""
        places = {
            int(field.metadata[_KEY]): field.name
            for field in schema
            if field.metadata and _KEY in field.metadata
        }
        return cls(tuple(places[place] for place in sorted(places)))

    def annotate(self, schema: pa.Schema) -> pa.Schema:
        """The columns, with those of the key marked and no others."""
        fields = []
        for field in schema:
            facts = {key: value for key, value in (field.metadata or {}).items() if key != _KEY}
            if field.name in self.columns:
                facts[_KEY] = str(self.columns.index(field.name)).encode()
            fields.append(field.with_metadata(facts or None))
        return pa.schema(fields)


def newest_key(changes: pa.Table, declared: Sequence[str] | None = None) -> TableKey | None:
    """The key that the newest of the changes which name one have; None if none of them does."""
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


def current_key(kept: TableKey | None, told: TableKey | None) -> TableKey:
    """The key of a table that has one, and of which changes tell one.

    Row ids are the key of a table that never told another one.
    """
    return kept if kept and (not told or told.by_row_id) else told or TableKey()


def key_columns(names: Sequence[str], schema: pa.Schema) -> tuple[str, ...]:
    """A source's names as columns are called here."""
    by_name = {field.name: field.name for field in schema}
    by_letters = {field.name.lower(): field.name for field in schema}
    found = []
    for name in names:
        column = (
            by_name.get(name) or by_name.get(derived_name(name)) or by_letters.get(name.lower())
        )
        if column is None:
            return ()
        found.append(column)
    return tuple(found)


ORDER = "_order"
MERGED_METADATA = ("_change_type", "_source_timestamp", ORDER)
"""Beside the source's columns, unless the pipeline wants none."""

APPENDED_METADATA = ("_uuid", "_is_deleted", *MERGED_METADATA)
"""Of tables without a key, whose changes are all there."""

_LOOKED_AT = frozenset(("_primary_keys", ROW_ID, *APPENDED_METADATA))


def columns_to_merge(log: pa.Schema) -> list[str]:
    """All that a merge looks at: most of what a log tells of a change is not among it."""
    return [name for name in log.names if name not in LOG_COLUMN_NAMES or name in _LOOKED_AT]


def merged_columns(log: pa.Schema, key: TableKey, metadata: bool) -> pa.Schema:
    """The source's columns first; those of the key remember that they are."""
    beside = set(MERGED_METADATA if metadata else ())
    if not key:
        beside |= set(APPENDED_METADATA)
    if key.by_row_id:
        beside.add(ROW_ID)
    own = [field for field in log if field.name not in LOG_COLUMN_NAMES]
    told = [field for field in log if field.name in beside]
    return key.annotate(pa.schema([*own, *told]))
