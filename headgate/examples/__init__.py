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
    files: tuple[str, ...] = ()
    """Names of files that the pipeline file refers to."""

    def file(self, name: str) -> str:
        """Return the text of a file that belongs beside the pipeline file."""
        return files("headgate.examples").joinpath(self.pipeline, name).read_text("utf-8")

    def text(self, servers: str = DEFAULT_SERVERS, registry: str = DEFAULT_REGISTRY) -> str:
        """Return the file's text with these addresses."""
        text = files("headgate.examples").joinpath(f"{self.name}.yaml").read_text("utf-8")
        return text.replace(DEFAULT_SERVERS, servers).replace(DEFAULT_REGISTRY, registry)


_PIZZA = ("features.sql", "labels.sql")

EXAMPLES = (
    Example("games", "games", "many games on one Kafka topic, wrapped protobuf", True),
    Example("games-embedded", "games", "many games from a Delta table, no server", False),
    Example("confluent", "confluent", "Avro or Protobuf topics in Confluent's framing", True),
    Example("pizza", "pizza", "waiting times of pizza stores, predicted", True, _PIZZA),
    Example("pizza-embedded", "pizza", "the same from a Delta table, no server", False, _PIZZA),
    Example("shop", "shop", "a database's change files, Avro or JSON, no server", False),
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
