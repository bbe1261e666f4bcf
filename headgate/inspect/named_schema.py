"""Columns by whatever name a person has for them: an id, a subject, a table, a file."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from headgate.errors import LandingError, RegistryError, UsageError
from headgate.inspect.ask_registry import asked_registry
from headgate.inspect.ledger_rows import LedgerRows
from headgate.inspect.table_schema import find_table, nearest_table, open_table
from headgate.pipeline import Pipeline
from headgate.pipeline.wording import nearest
from headgate.quarantine.reason import Reason
from headgate.schema.avro import AvroDecoder
from headgate.schema.decoder import FIRST_MESSAGE, Decoder, Refusal
from headgate.schema.decoders import Decoders
from headgate.schema.origin import ORIGIN_COLUMNS
from headgate.schema.protobuf import NoSuchMessage, ProtobufDecoder
from headgate.schema.registry import Catalogue, RefusedSchema, UnknownSchema
from headgate.schema.registry_file import KINDS, read_schema_file

_AT_VERSION = re.compile(r"(.+)@([0-9]{1,18})")


class Named(StrEnum):
    """What a name turned out to be."""

    FILE = "file"
    SCHEMA = "schema"
    SUBJECT = "subject"
    TABLE = "table"


@dataclass(frozen=True)
class NamedSchema:
    """Columns, and what they are the columns of."""

    name: str
    what: Named
    columns: pa.Schema = field(repr=False)
    """The message's own; where a record came from is the same everywhere."""
    version: int | None = None
    """Of the subject or of the table."""
    schema_id: int | None = None

    def __str__(self) -> str:
        version = f" version {self.version}" if self.version is not None else ""
        known_as = f", schema {self.schema_id}" if self.what is Named.SUBJECT else ""
        return f"{self.what} {self.name}{version}{known_as}"


def is_schema_file(name: str) -> bool:
    """Whether a name is that of a file: one that is there, or one with a path."""
    path = Path(name)
    return path.suffix in KINDS and (path.is_file() or "/" in name)


def find_schema(name: str, pipeline: Pipeline | None) -> NamedSchema:
    """A file by its path; with a pipeline also an id, a table or route, or a subject."""
    if is_schema_file(name):
        return _in_file(name)
    if pipeline is None:
        raise UsageError("bad-argument", f"`{name}` is no file", hint="name a pipeline for it")
    if name.isdecimal():
        with asked_registry(pipeline) as registry:
            columns = _registered(registry, int(name), f"schema {name}")
        return NamedSchema(name, Named.SCHEMA, columns, schema_id=int(name))
    parts = _AT_VERSION.fullmatch(name)
    plain, version = (parts[1], int(parts[2])) if parts else (name, None)
    known = [
        row["table"]
        for row in LedgerRows(pipeline).query(
            """SELECT DISTINCT "table" FROM ledger WHERE kind = 'table'"""
        )
    ]
    table = find_table(pipeline, plain, known)
    if table is not None:
        return _of_table(pipeline, table, version)
    with asked_registry(pipeline) as registry:
        return _of_subject(registry, pipeline, plain, version, known)


def _in_file(name: str) -> NamedSchema:
    try:
        text = read_schema_file(Path(name))
        decoder: Decoder = (
            ProtobufDecoder.compile(text, FIRST_MESSAGE)
            if text.kind == "PROTOBUF"
            else AvroDecoder.parse(text)
        )
    except OSError as error:
        raise UsageError("bad-argument", f"`{name}` cannot be read: {error.strerror}") from None
    except (RefusedSchema, NoSuchMessage) as error:
        raise RegistryError("schema-refused", f"{name}: {error}") from None
    return NamedSchema(name, Named.FILE, _own(decoder.schema))


def _of_table(pipeline: Pipeline, table: str, version: int | None) -> NamedSchema:
    opened = open_table(pipeline, table)
    newest = opened.version()
    if version is not None and version != newest:
        try:
            opened = DeltaTable(str(Path(pipeline.lake, table)), version=version)
        except (DeltaError, OSError):
            raise LandingError(
                "table-unknown",
                f"table `{table}` has no version {version}",
                hint=f"its newest is {newest}; of old ones, the log may be cleaned up",
                where=pipeline.lake,
            ) from None
    columns = _own(pa.schema(opened.schema()))
    return NamedSchema(table, Named.TABLE, columns, version=opened.version())


def _of_subject(
    registry: Catalogue,
    pipeline: Pipeline,
    name: str,
    version: int | None,
    tables: Collection[str],
) -> NamedSchema:
    try:
        newest = registry.newest(name)
    except UnknownSchema:
        meant = nearest(name, registry.subjects()) or nearest_table(pipeline, name, tables)
        raise LandingError(
            "name-unknown",
            f"there is no table and no subject `{name}`",
            hint=f"did you mean `{meant}`?" if meant else "headgate tables lists the tables",
            where=pipeline.lake,
        ) from None
    found = newest if version is None else registry.version(name, version)
    columns = _registered(registry, found.schema_id, str(found))
    return NamedSchema(name, Named.SUBJECT, columns, found.version, found.schema_id)


def _registered(registry: Catalogue, schema_id: int, called: str) -> pa.Schema:
    decoder = Decoders(registry).decoder(schema_id)
    if isinstance(decoder, Refusal):
        unknown = decoder.reason is Reason.SCHEMA_UNKNOWN
        code = "schema-unknown" if unknown else "schema-refused"
        raise RegistryError(code, f"{called}: {decoder.detail}")
    return _own(decoder.schema)


def _own(columns: pa.Schema) -> pa.Schema:
    return pa.schema([one for one in columns if one.name not in ORIGIN_COLUMNS])
