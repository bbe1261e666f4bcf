"""What a table is: its protocol and its metadata, and what they ask of readers and writers."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import pyarrow as pa
from deltalake import DeltaTable, Schema

from headgate.lake.constraints import Constraints, constrained_columns, constraints_in

_FEATURES_OF_WRITERS = {
    2: ("appendOnly", "invariants"),
    3: ("checkConstraints",),
    4: ("changeDataFeed", "generatedColumns"),
    5: ("columnMapping",),
    6: ("identityColumns",),
}
"""Features that each version of the protocol added, before tables listed theirs."""
_LISTED_READER, _LISTED_WRITER = 3, 7
"""Versions of the protocol since which tables list their features."""
_COLUMN_MAPPING_READER = 2

_READ_FROM_FILES = {"timestampNtz", "v2Checkpoint", "vacuumProtocolCheck"}
"""Reader features with which the Parquet files of a table have its rows as they are."""

_KEPT_BY_ENTRIES = {
    "appendOnly",
    "invariants",
    "checkConstraints",
    "changeDataFeed",
    "generatedColumns",
    "identityColumns",
    "columnMapping",
    "deletionVectors",
    "timestampNtz",
    "v2Checkpoint",
    "vacuumProtocolCheck",
    "variantType",
    "variantType-preview",
}
"""Features that an entry with added files keeps, as long as no constraint is in force, and columns
are not mapped. All others are left to Kernel or Spark."""


@dataclass(frozen=True)
class TableProtocol:
    """The features of a table that its readers and writers have to know."""

    reader: int = 1
    writer: int = 2
    reader_features: frozenset[str] = frozenset()
    writer_features: frozenset[str] = frozenset()

    @classmethod
    def of(cls, table: DeltaTable) -> Self:
        found = table.protocol()
        return cls(
            found.min_reader_version,
            found.min_writer_version,
            frozenset(found.reader_features or ()),
            frozenset(found.writer_features or ()),
        )

    @classmethod
    def from_action(cls, action: Mapping[str, Any]) -> Self:
        return cls(
            int(action["minReaderVersion"]),
            int(action["minWriterVersion"]),
            frozenset(action.get("readerFeatures") or ()),
            frozenset(action.get("writerFeatures") or ()),
        )

    @cached_property
    def features(self) -> frozenset[str]:
        """All features of the table, also those that its version of the protocol implies."""
        if self.writer >= _LISTED_WRITER:
            return self.writer_features | self.reader_features
        versions = range(2, self.writer + 1)
        implied = (name for version in versions for name in _FEATURES_OF_WRITERS.get(version, ()))
        return frozenset(implied) | self.reader_features

    def with_feature(self, feature: str, of_readers: bool) -> Self:
        """Return the protocol of a table that gets a feature of writers, and maybe of readers.

        Features that an older protocol implies have to be listed from then on.
        """
        if feature in self.features:
            return self
        for_readers = {"columnMapping"} if self.reader == _COLUMN_MAPPING_READER else set()
        if of_readers:
            for_readers.add(feature)
        return replace(
            self,
            reader=_LISTED_READER if for_readers else self.reader,
            writer=_LISTED_WRITER,
            reader_features=self.reader_features | for_readers,
            writer_features=self.features | {feature},
        )

    def action(self) -> dict[str, Any]:
        action: dict[str, Any] = {
            "minReaderVersion": self.reader,
            "minWriterVersion": self.writer,
        }
        if self.reader >= _LISTED_READER:
            action["readerFeatures"] = sorted(self.reader_features)
        if self.writer >= _LISTED_WRITER:
            action["writerFeatures"] = sorted(self.writer_features)
        return action


@dataclass(frozen=True)
class TableMetadata:
    """The columns, partitioning and properties of a table."""

    id: str
    schema_json: str
    partition_columns: tuple[str, ...] = ()
    configuration: Mapping[str, str] = field(default_factory=dict)
    name: str | None = None
    description: str | None = None
    created: int | None = None
    """Milliseconds since the epoch."""

    @classmethod
    def of(cls, table: DeltaTable) -> Self:
        found = table.metadata()
        return cls(
            str(found.id),
            table.schema().to_json(),
            tuple(found.partition_columns),
            found.configuration,
            found.name,
            found.description,
            found.created_time,
        )

    @classmethod
    def from_action(cls, action: Mapping[str, Any]) -> Self:
        return cls(
            action["id"],
            action["schemaString"],
            tuple(action.get("partitionColumns") or ()),
            action.get("configuration") or {},
            action.get("name"),
            action.get("description"),
            action.get("createdTime"),
        )

    @cached_property
    def schema(self) -> pa.Schema:
        return pa.schema(Schema.from_json(self.schema_json))

    def with_columns(self, wanted: pa.Schema) -> Self:
        """Return metadata with the columns that a schema has in addition, nested ones too."""
        added = json.loads(Schema.from_arrow(wanted).to_json())
        merged = _merged(json.loads(self.schema_json), added, "")
        return replace(self, schema_json=json.dumps(merged, ensure_ascii=False))

    def action(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "name": self.name,
            "description": self.description,
            "format": {"provider": "parquet", "options": {}},
            "schemaString": self.schema_json,
            "partitionColumns": list(self.partition_columns),
            "createdTime": self.created,
            "configuration": dict(self.configuration),
        }


class IncompatibleColumns(ValueError):
    """Raised for columns that a table cannot get beside those that it has."""


def _merged(known: Any, wanted: Any, path: str) -> Any:
    """Return a type of the log with the nested fields that another one has in addition."""
    if isinstance(known, str) or isinstance(wanted, str):
        if known != wanted:
            raise IncompatibleColumns(f"column {path} is {_name(known)}, not {_name(wanted)}")
        return known
    if known["type"] != wanted["type"]:
        raise IncompatibleColumns(f"column {path} is {_name(known)}, not {_name(wanted)}")
    if known["type"] != "struct":
        inside = {
            part: _merged(known[part], wanted[part], f"{path}.{part}")
            for part in ("elementType", "keyType", "valueType")
            if part in known
        }
        return {**known, **inside}
    fields = {column["name"]: column for column in known["fields"]}
    names = {name.lower(): name for name in fields}
    for column in wanted["fields"]:
        name = column["name"]
        here = f"{path}.{name}" if path else name
        if name in fields:
            kind = _merged(fields[name]["type"], column["type"], here)
            fields[name] = {**fields[name], "type": kind}
        elif name.lower() in names:
            raise IncompatibleColumns(
                f"column {here} differs from column {names[name.lower()]} only in case"
            )
        else:
            fields[name] = {**column, "nullable": True}
            names[name.lower()] = name
    return {**known, "fields": list(fields.values())}


def _name(kind: Any) -> str:
    return kind if isinstance(kind, str) else str(kind["type"])


@dataclass(frozen=True)
class TableDefinition:
    """The protocol and the metadata of a table: what commits that only change files leave."""

    protocol: TableProtocol
    metadata: TableMetadata

    @classmethod
    def of(cls, table: DeltaTable) -> Self:
        return cls(TableProtocol.of(table), TableMetadata.of(table))

    @property
    def schema(self) -> pa.Schema:
        return self.metadata.schema

    @cached_property
    def constraints(self) -> Constraints:
        """What rows of the table must fulfil."""
        metadata = self.metadata
        return Constraints.of(metadata.configuration, constrained_columns(metadata.schema_json))

    @cached_property
    def is_mapped(self) -> bool:
        """Whether files have other names for columns than the table."""
        mode = self.metadata.configuration.get("delta.columnMapping.mode", "none")
        return mode != "none" or self.protocol.reader == _COLUMN_MAPPING_READER

    @cached_property
    def is_plain(self) -> bool:
        """Whether the Parquet files of the table have its rows as they are."""
        return not self.is_mapped and self.protocol.reader_features <= _READ_FROM_FILES

    @cached_property
    def has_added_rows_in_files(self) -> bool:
        """Whether a file without a deletion vector has its rows as they are."""
        features = self.protocol.reader_features - {"deletionVectors"}
        return not self.is_mapped and features <= _READ_FROM_FILES

    @property
    def has_change_data(self) -> bool:
        """Whether writers have to record which rows they change."""
        return _is_true(self.metadata.configuration.get("delta.enableChangeDataFeed"))

    @cached_property
    def obstacle(self) -> str | None:
        """What an entry that adds files would break, in words; None if it breaks nothing."""
        others = self.protocol.features - _KEPT_BY_ENTRIES
        if others:
            return f"the table feature {', '.join(sorted(others))}"
        if self.is_mapped:
            return "column mapping"
        if _is_true(self.metadata.configuration.get("delta.enableInCommitTimestamps")):
            return "in-commit timestamps"
        return str(self.constraints) or None

    @cached_property
    def obstacle_to_compaction(self) -> str | None:
        """The same of an entry that replaces files by others with the same rows."""
        # The entry would have to name the vector of each file.
        return "deletion vectors" if "deletionVectors" in self.protocol.features else self.obstacle

    @cached_property
    def obstacle_to_removal(self) -> str | None:
        """The same of an entry that removes files with their rows."""
        return "delta.appendOnly" if self.constraints.append_only else self.obstacle_to_compaction

    @cached_property
    def obstacle_to_merge(self) -> str | None:
        """The same of an entry that replaces files by others, with some of their rows changed."""
        obstacle = self.obstacle_to_removal
        if obstacle is None and self.metadata.partition_columns:
            return "partitions"
        if obstacle is None and self.has_change_data:
            return "a change data feed"
        if obstacle is None and not self.is_plain:
            return "rows that its files do not have as they are"
        return obstacle

    def with_columns(self, wanted: pa.Schema) -> Self:
        """Return the definition with the columns that a schema has in addition."""
        return self._changed(self.metadata.with_columns(wanted))

    def replaced_by(self, schema: pa.Schema, partition_by: Iterable[str] = ()) -> Self:
        """Return the definition with other columns."""
        columns = Schema.from_arrow(schema).to_json()
        return self._changed(
            replace(self.metadata, schema_json=columns, partition_columns=tuple(partition_by))
        )

    def with_properties(self, properties: Mapping[str, str]) -> Self:
        """Return the definition with properties that ask for no feature."""
        configuration = {**self.metadata.configuration, **properties}
        return self._changed(replace(self.metadata, configuration=configuration))

    def _changed(self, metadata: TableMetadata) -> Self:
        return replace(self, protocol=required_protocol(metadata, self.protocol), metadata=metadata)


def required_protocol(
    metadata: TableMetadata, before: TableProtocol | None = None
) -> TableProtocol:
    """Return the protocol of a table with these columns, which keeps the features that it had."""
    protocol = before or TableProtocol()
    if '"timestamp_ntz"' in metadata.schema_json:
        protocol = protocol.with_feature("timestampNtz", of_readers=True)
    if constraints_in(metadata.schema_json):
        protocol = protocol.with_feature("invariants", of_readers=False)
    return protocol


def _is_true(value: str | None) -> bool:
    return (value or "").lower() == "true"
