"""Pipelines to begin with; `headgate init` writes them."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from importlib.resources import files

from headgate.errors import UsageError

USUAL_SERVERS = "localhost:9092"
USUAL_REGISTRY = "http://localhost:8081/apis/ccompat/v7"


@dataclass(frozen=True)
class Example:
    """A pipeline file that ships with Headgate."""

    name: str
    pipeline: str
    """What the pipeline in it is called."""
    summary: str
    needs_services: bool

    def text(self, servers: str = USUAL_SERVERS, registry: str = USUAL_REGISTRY) -> str:
        """The file, with the addresses to use."""
        text = files("headgate.examples").joinpath(f"{self.name}.yaml").read_text("utf-8")
        return text.replace(USUAL_SERVERS, servers).replace(USUAL_REGISTRY, registry)


EXAMPLES = (
    Example("games", "games", "many games on one Kafka topic, wrapped protobuf", True),
    Example("games-embedded", "games", "many games from a Delta table, no server", False),
    Example("confluent", "confluent", "Avro or Protobuf topics in Confluent's framing", True),
    Example("shop", "shop", "a database's change files, Avro or JSON, no server", False),
)


def find_example(name: str) -> Example:
    for example in EXAMPLES:
        if example.name == name:
            return example
    names = [example.name for example in EXAMPLES]
    near = get_close_matches(name, names, n=1)
    hint = f"did you mean `{near[0]}`?" if near else f"there are {', '.join(names)}"
    raise UsageError("bad-argument", f"unknown example `{name}`", hint=hint)


__all__ = ["EXAMPLES", "Example", "find_example"]
