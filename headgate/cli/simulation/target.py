"""Where a simulation goes: a topic and a registry, or an inbox and a folder of schemas."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

from headgate.errors import UsageError

if TYPE_CHECKING:
    from headgate.schema.registry import Registry
    from headgate.simulate.destination import Destination


@dataclass(frozen=True)
class Target:
    """A destination for records and one for schemas; `servers` is None for a Delta inbox."""

    servers: str | None
    registry: str
    topic: str
    inbox: Path
    partitions: int = 4

    @classmethod
    def kafka(cls, servers: str | None, registry: str | None, topic: str, partitions: int) -> Self:
        """What was asked for; for the rest, the services that run here."""
        if servers is None or registry is None:
            from headgate.local import find

            services = find()
            if services is None:
                raise UsageError(
                    "bad-argument",
                    "no local services run in ./.headgate",
                    hint="headgate up starts them; --servers and --registry name others; "
                    "--to delta needs none",
                )
            servers = servers or services.servers
            registry = registry or services.registry
        return cls(servers, registry, topic, Path(), partitions)

    @classmethod
    def delta(cls, inbox: Path, registry: str | None, topic: str) -> Self:
        return cls(None, registry or "schemas", topic, inbox)

    def __str__(self) -> str:
        return f"topic {self.topic} at {self.servers}" if self.servers else str(self.inbox)

    def open(self) -> Destination:
        from headgate.simulate.destination import DeltaDestination, KafkaDestination

        if self.servers is None:
            return DeltaDestination(str(self.inbox), self.topic)
        return KafkaDestination(self.servers, self.topic, self.partitions)

    def open_registry(self) -> Registry:
        from headgate.pipeline import Registry as Declared
        from headgate.schema.open_registry import open_registry

        declared = (
            Declared(folder=self.registry) if self.has_folder else Declared(url=self.registry)
        )
        return open_registry(declared)

    @property
    def has_folder(self) -> bool:
        """Whether schemas are kept as files."""
        return not self.registry.startswith(("http://", "https://"))
