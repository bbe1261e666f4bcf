"""The seam to a schema registry: schema texts by id."""

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


class UnknownSchema(RegistryError):
    """The registry answered, and has no schema of that id."""


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
