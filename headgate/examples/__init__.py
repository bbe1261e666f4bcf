"""Example pipelines, written by `headgate init`."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from importlib.resources import files

from headgate.errors import UsageError

DEFAULT_SERVERS = "localhost:9092"
DEFAULT_REGISTRY = "http://localhost:8081/apis/ccompat/v7"


@dataclass(frozen=True)
class Example:
    """A pipeline file that ships with Headgate."""

    name: str
    pipeline: str
    """Name of the pipeline."""
    summary: str
    needs_services: bool
    beside: tuple[str, ...] = ()
    """Other files that it refers to."""

    def text(self, servers: str = DEFAULT_SERVERS, registry: str = DEFAULT_REGISTRY) -> str:
        """Return the file's text with these addresses."""
        text = _read(f"{self.name}.yaml")
        return text.replace(DEFAULT_SERVERS, servers).replace(DEFAULT_REGISTRY, registry)

    def files(
        self, servers: str = DEFAULT_SERVERS, registry: str = DEFAULT_REGISTRY
    ) -> dict[str, str]:
        """Return the texts of the pipeline file and of those beside it, by name."""
        others = {name: _read(f"{self.pipeline}/{name}") for name in self.beside}
        return {f"{self.pipeline}.yaml": self.text(servers, registry), **others}


def _read(name: str) -> str:
    return files("headgate.examples").joinpath(name).read_text("utf-8")


_PIZZA_SQL = ("features.sql", "labels.sql")

EXAMPLES = (
    Example("games", "games", "many games on one Kafka topic, wrapped protobuf", True),
    Example("games-embedded", "games", "many games from a Delta table, no server", False),
    Example("confluent", "confluent", "Avro or Protobuf topics in Confluent's framing", True),
    Example("shop", "shop", "a database's change files, Avro or JSON, no server", False),
    Example("pizza", "pizza", "orders of a pizza chain and predicted waits", True, _PIZZA_SQL),
    Example("pizza-embedded", "pizza", "the same from a Delta table, no server", False, _PIZZA_SQL),
)


def find_example(name: str) -> Example:
    """Return the example with this name; UsageError if it does not exist."""
    for example in EXAMPLES:
        if example.name == name:
            return example
    names = [example.name for example in EXAMPLES]
    near = get_close_matches(name, names, n=1)
    hint = f"did you mean `{near[0]}`?" if near else f"use {', '.join(names)}"
    raise UsageError("bad-argument", f"unknown example `{name}`", hint=hint)


__all__ = ["EXAMPLES", "Example", "find_example"]
