"""The interface of schema registries, and the values and errors that they share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from headgate.errors import RegistryError

SchemaKey = int | str
"""The id of a schema in its registry, or its GUID."""

SchemaType = Literal["PROTOBUF", "AVRO", "JSON"]

MAX_SCHEMA_SIZE = 1 << 20
MAX_REFERENCE_DEPTH = 16
MAX_REFERENCES = 256


@dataclass(frozen=True)
class SchemaText:
    """A registered schema with the texts of all schemas that it references."""

    schema_type: SchemaType
    text: str
    references: tuple[tuple[str, str], ...] = ()
    """Names and texts, each after its own references."""


@dataclass(frozen=True)
class SubjectVersion:
    """A version of a subject, and the id of its schema."""

    subject: str
    version: int
    schema_id: int

    def __str__(self) -> str:
        return f"{self.subject}@{self.version}"


class UnknownSchema(RegistryError):
    """The registry has no such schema."""


class RefusedSchema(Exception):
    """The schema exists but cannot be used; the message says why."""


class SchemaRegistry(Protocol):
    """A source of schemas by id; the schema of an id never changes."""

    def fetch(self, key: SchemaKey) -> SchemaText:
        """Return a schema with its references.

        Raises UnknownSchema, RefusedSchema, or RegistryUnavailable after the timeout.
        """
        ...

    def register(self, subject: str, schema: SchemaText) -> int:
        """Register a schema under a subject and return its id; idempotent."""
        ...

    def close(self) -> None:
        """Close all connections."""
        ...


class SchemaCatalog(SchemaRegistry, Protocol):
    """A registry whose subjects can be listed; reading records does not need this."""

    def subjects(self) -> list[str]:
        """Return all subjects."""
        ...

    def latest(self, subject: str) -> SubjectVersion:
        """Return the latest version of a subject; raise UnknownSchema if it does not exist."""
        ...

    def latest_versions(self) -> list[SubjectVersion]:
        """Return the latest version of every subject."""
        ...

    def version(self, subject: str, number: int) -> SubjectVersion:
        """Return a version of a subject; raise UnknownSchema if it does not exist."""
        ...

    def delete(self, subject: str) -> None:
        """Delete all versions of a subject for good, if it exists."""
        ...

    def subjects_of(self, schema_id: int) -> list[str]:
        """Return the subjects that a schema is registered under; empty if it is unknown."""
        ...
