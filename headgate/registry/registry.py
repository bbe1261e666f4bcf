"""The seam to a schema registry: schema texts by id, and what is registered under which name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from headgate.errors import RegistryError

SchemaKey = int | str
"""A registry's number for a schema, or its GUID."""

Kind = Literal["PROTOBUF", "AVRO", "JSON"]

LARGEST_SCHEMA = 1 << 20
DEEPEST_REFERENCE = 16
MOST_REFERENCES = 256


@dataclass(frozen=True)
class SchemaText:
    """A schema as its registry holds it, with the texts of everything it refers to."""

    kind: Kind
    text: str
    references: tuple[tuple[str, str], ...] = ()
    """(name, text) of each, the least dependent first."""


@dataclass(frozen=True)
class SubjectVersion:
    """One version of a subject, and the schema that it stands for."""

    subject: str
    version: int
    schema_id: int

    def __str__(self) -> str:
        return f"{self.subject}@{self.version}"


class UnknownSchema(RegistryError):
    """The registry answered, and has no such schema."""


class RefusedSchema(Exception):
    """There is a schema, but it cannot be used; the message says why."""


class Registry(Protocol):
    """Where schemas come from. Ids never change their meaning."""

    def fetch(self, key: SchemaKey) -> SchemaText:
        """The schema of that id.

        Raises UnknownSchema, RefusedSchema, or RegistryUnavailable once waiting has not helped.
        """
        ...

    def register(self, subject: str, schema: SchemaText) -> int:
        """Make a schema known under a subject and return its id; the same text, the same id."""
        ...

    def close(self) -> None:
        """Let go of connections."""
        ...


class Catalogue(Registry, Protocol):
    """A registry that is also asked what it has: all but landing itself wants to know that."""

    def subjects(self) -> list[str]:
        """All names under which there are schemas."""
        ...

    def newest(self, subject: str) -> SubjectVersion:
        """What was registered last under a name; raises UnknownSchema."""
        ...

    def all_newest(self) -> list[SubjectVersion]:
        """What was registered last under every name."""
        ...

    def version(self, subject: str, number: int) -> SubjectVersion:
        """That version of a name; raises UnknownSchema."""
        ...

    def subjects_of(self, schema_id: int) -> list[str]:
        """The names under which a schema is registered; none for one that is unknown."""
        ...
