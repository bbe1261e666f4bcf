"""The changes from one schema to another, and what a contract makes of them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

import pyarrow as pa

from headgate.config import Contract, Duration, PipelineConfig, Rules, Wrapper
from headgate.errors import LandingError, RegistryError, UsageError, nearest
from headgate.formats.avro import AvroDecoder
from headgate.formats.decoder import (
    FIRST_MESSAGE,
    ROOT_MESSAGE,
    Decoder,
    MessageChoice,
    Refusal,
)
from headgate.formats.decoders import Decoders
from headgate.formats.protobuf import AmbiguousMessage, NoSuchMessage, ProtobufDecoder
from headgate.inspect.ledger import open_ledger
from headgate.inspect.schema import find_table, nearest_table, open_table
from headgate.lake.delta_rs import DeltaRsCommitter
from headgate.lake.ledger_entries import Kind
from headgate.lake.snapshot import Snapshot
from headgate.lake.tables import TableError
from headgate.reasons import Reason
from headgate.registry.folder import SCHEMA_TYPES, read_schema_file
from headgate.registry.open import opened_registry
from headgate.registry.registry import RefusedSchema, SchemaCatalog, UnknownSchema
from headgate.schema.changes import DropColumn, RenameColumn, SchemaChange, WidenType
from headgate.schema.field_metadata import kept_apart_from
from headgate.schema.fit import fit
from headgate.schema.origin import ORIGIN_COLUMNS

REGISTRY_TIMEOUT = Duration(seconds=10)
"""Shorter than that of a run, because a person waits for the answer."""

_AT_VERSION = re.compile(r"(.+)@([0-9]{1,18})")


class Named(StrEnum):
    """What a name refers to."""

    FILE = "file"
    SCHEMA = "schema"
    SUBJECT = "subject"
    TABLE = "table"


@dataclass(frozen=True)
class NamedSchema:
    """The columns of a file, a schema, a subject or a table."""

    name: str
    what: Named
    columns: pa.Schema = field(repr=False)
    """Those of the message, without metadata about the source."""
    version: int | None = None
    """Version of the subject or of the table."""
    schema_id: int | None = None

    def __str__(self) -> str:
        version = f" version {self.version}" if self.version is not None else ""
        known_as = f", schema {self.schema_id}" if self.what is Named.SUBJECT else ""
        return f"{self.what} {self.name}{version}{known_as}"


def is_schema_file(name: str) -> bool:
    """Return whether a name is that of a file: one that exists, or one with a path."""
    path = Path(name)
    return path.suffix in SCHEMA_TYPES and (path.is_file() or "/" in name)


def payload_message(pipeline: PipelineConfig | None, names: Iterable[str]) -> MessageChoice:
    """Return the message that payloads of a registered schema are, by its routes or subjects.

    In Confluent's framing the records themselves name it; the first one is assumed.
    """
    if pipeline is None:
        return ROOT_MESSAGE
    if not isinstance(pipeline.envelope, Wrapper):
        return FIRST_MESSAGE
    for name in names:
        for route in dict.fromkeys((name, name.removesuffix("-value"))):
            message = pipeline.envelope.payload_messages.for_route(route)
            if message is not None:
                return message
    return ROOT_MESSAGE


def find_schema(name: str, pipeline: PipelineConfig | None) -> NamedSchema:
    """Find a file by its path; with a pipeline also an id, a table or route, or a subject."""
    if is_schema_file(name):
        return _in_file(name, payload_message(pipeline, [Path(name).stem]))
    if pipeline is None:
        hint = "to use tables or subjects, name a pipeline with --pipeline"
        raise UsageError("bad-argument", f"`{name}` is not a file", hint=hint)
    if name.isdecimal():
        with opened_registry(pipeline.schema_registry, REGISTRY_TIMEOUT) as registry:
            subjects = registry.subjects_of(int(name))
            message = payload_message(pipeline, subjects)
            columns = _registered(registry, int(name), message, f"schema {name}")
        return NamedSchema(name, Named.SCHEMA, columns, schema_id=int(name))
    parts = _AT_VERSION.fullmatch(name)
    plain, version = (parts[1], int(parts[2])) if parts else (name, None)
    known = open_ledger(pipeline).stream.tables(Kind.TABLE)
    table = find_table(pipeline, plain, known)
    if table is not None:
        return _of_table(pipeline, table, version)
    with opened_registry(pipeline.schema_registry, REGISTRY_TIMEOUT) as registry:
        return _of_subject(registry, pipeline, plain, version, known)


def _in_file(name: str, message: MessageChoice) -> NamedSchema:
    try:
        text = read_schema_file(Path(name))
        decoder: Decoder = (
            ProtobufDecoder.compile(text, message)
            if text.schema_type == "PROTOBUF"
            else AvroDecoder.parse(text)
        )
    except OSError as error:
        raise UsageError("bad-argument", f"`{name}` cannot be read: {error.strerror}") from None
    except AmbiguousMessage as error:
        hint = "name a pipeline whose `envelope.wrapper.payload_message` chooses one"
        raise RegistryError("schema-refused", f"{name}: {error}", hint) from None
    except (RefusedSchema, NoSuchMessage) as error:
        raise RegistryError("schema-refused", f"{name}: {error}") from None
    return NamedSchema(name, Named.FILE, _own(decoder.schema))


def _of_table(pipeline: PipelineConfig, table: str, version: int | None) -> NamedSchema:
    opened = open_table(pipeline, table)
    newest = opened.version
    if version is not None and version != newest:
        try:
            older = Snapshot.open(pipeline.lake, table, version)
        except (TableError, OSError):
            older = None
        if older is None:
            raise LandingError(
                "table-unknown",
                f"table `{table}` has no version {version}",
                hint=f"its newest version is {newest}; old versions may have been cleaned up",
                where=pipeline.lake,
            )
        opened = older
    columns = _own(opened.schema)
    return NamedSchema(table, Named.TABLE, columns, version=opened.version)


def _of_subject(
    registry: SchemaCatalog,
    pipeline: PipelineConfig,
    name: str,
    version: int | None,
    tables: Collection[str],
) -> NamedSchema:
    try:
        newest = registry.latest(name)
    except UnknownSchema:
        meant = nearest(name, registry.subjects()) or nearest_table(pipeline, name, tables)
        raise LandingError(
            "name-unknown",
            f"no table or subject `{name}`",
            hint=f"did you mean `{meant}`?" if meant else "headgate tables lists all tables",
            where=pipeline.lake,
        ) from None
    found = newest if version is None else registry.version(name, version)
    message = payload_message(pipeline, [name])
    columns = _registered(registry, found.schema_id, message, str(found))
    return NamedSchema(name, Named.SUBJECT, columns, found.version, found.schema_id)


def _registered(
    registry: SchemaCatalog, schema_id: int, message: MessageChoice, called: str
) -> pa.Schema:
    decoder = Decoders(registry).decoder(schema_id, message)
    if isinstance(decoder, Refusal):
        unknown = decoder.reason is Reason.SCHEMA_UNKNOWN
        code = "schema-unknown" if unknown else "schema-refused"
        ambiguous = decoder.reason is Reason.MESSAGE_AMBIGUOUS
        hint = "name the message in `envelope.wrapper.payload_message`" if ambiguous else None
        raise RegistryError(code, f"{called}: {decoder.detail}", hint)
    return _own(decoder.schema)


def _own(columns: pa.Schema) -> pa.Schema:
    return pa.schema([one for one in columns if one.name not in ORIGIN_COLUMNS])


def can_rewrite(pipeline: PipelineConfig, table: str, size: int) -> bool:
    """Return whether the committer that a run uses for the table would rewrite it."""
    most = int(pipeline.contract.rewrite_up_to)
    delta_rs = DeltaRsCommitter(pipeline.lake)
    if pipeline.commit == "spark" or (pipeline.commit == "auto" and not delta_rs.can_write(table)):
        snapshot = Snapshot.open(pipeline.lake, table)
        return size <= most and (snapshot is None or snapshot.definition.constraints.allow_rewrite)
    return delta_rs.can_rewrite(table, most)


@dataclass(frozen=True)
class SchemaDiff:
    """Two schemas, and the changes from the first to the second."""

    first: NamedSchema
    second: NamedSchema
    contract: Rules
    changes: tuple[SchemaChange, ...]

    def as_record(self) -> dict[str, Any]:
        return {
            "from": _record(self.first),
            "to": _record(self.second),
            "contract": self.contract.model_dump(mode="json"),
            "changes": [change_record(one) for one in self.changes],
        }


def read_schema_diff(first: str, second: str, pipeline: PipelineConfig | None = None) -> SchemaDiff:
    """Compare two schemas; without a pipeline, both are files and every change is allowed."""
    one, other = find_schema(first, pipeline), find_schema(second, pipeline)
    rules = _rules(pipeline, one, other)
    diff = diff_schemas(one, other, rules)
    if any(isinstance(change, WidenType) for change in diff.changes):
        return diff_schemas(one, other, rules, _may_widen(pipeline, one))
    return diff


def diff_schemas(
    first: NamedSchema, second: NamedSchema, contract: Rules, may_widen: bool = True
) -> SchemaDiff:
    """Compare as if records of the second came to a table with the columns of the first."""
    asked = fit(second.columns, first.columns, contract, may_widen).changes
    renamed = {change.was for change in asked if isinstance(change, RenameColumn)}
    gone = _gone(first.columns, second.columns, renamed)
    return SchemaDiff(first, second, contract, (*asked, *map(DropColumn, gone)))


def _gone(before: pa.Schema, after: pa.Schema, renamed: Collection[str]) -> Iterator[str]:
    types = dict(zip(after.names, after.types, strict=True))
    for column in before:
        if column.name in types:
            yield from _gone_inside(column.type, types[column.name], column.name)
        elif column.name not in renamed and kept_apart_from(column) is None:
            yield column.name


def _gone_inside(before: pa.DataType, after: pa.DataType, path: str) -> Iterator[str]:
    """Yield fields inside a column, as long as it is of the same kind in both."""
    if pa.types.is_struct(before) and pa.types.is_struct(after):
        types = {one.name: one.type for one in after}
        for one in before:
            inside = f"{path}.{one.name}"
            if one.name in types:
                yield from _gone_inside(one.type, types[one.name], inside)
            else:
                yield inside
    elif pa.types.is_list(before) and pa.types.is_list(after):
        yield from _gone_inside(before.value_type, after.value_type, f"{path}.element")
    elif pa.types.is_map(before) and pa.types.is_map(after):
        yield from _gone_inside(before.item_type, after.item_type, f"{path}.value")


def _rules(pipeline: PipelineConfig | None, *schemas: NamedSchema) -> Rules:
    contract = pipeline.contract if pipeline is not None else Contract()
    for one in schemas:
        if one.what is Named.TABLE:
            return contract.for_table(one.name)
    return Rules(
        tables=contract.tables,
        columns=contract.columns,
        types=contract.types,
        unknown_fields=contract.unknown_fields,
    )


def _may_widen(pipeline: PipelineConfig | None, first: NamedSchema) -> bool:
    if pipeline is None or first.what is not Named.TABLE:
        return True
    size = open_table(pipeline, first.name).bytes
    return can_rewrite(pipeline, first.name, size)


def _record(schema: NamedSchema) -> dict[str, Any]:
    return {name: value for name, value in vars(schema).items() if name != "columns"}


def change_record(change: SchemaChange) -> dict[str, Any]:
    return {**change.as_record(), "breaking": change.breaking, "text": str(change)}
