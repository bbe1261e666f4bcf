"""Shards: the routes of one pipeline, split over several streams."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from zlib import crc32

from headgate.errors import UsageError, shown

MAX_SHARDS = 64
_SHARD = re.compile(r"(\d{1,3})/(\d{1,3})")


@dataclass(frozen=True)
class Shard:
    """One of the shards of a pipeline; the first is 1."""

    number: int
    of: int

    @classmethod
    def parse(cls, text: str) -> Shard:
        """Read a shard such as `2/4`."""
        found = _SHARD.fullmatch(text.strip())
        shard = cls(int(found[1]), int(found[2])) if found else None
        if shard is None or not 1 <= shard.number <= shard.of <= MAX_SHARDS:
            raise UsageError(
                "bad-argument",
                f"--shard: {shown(text)} is not a shard",
                hint="write its number and the number of shards: `--shard 2/4`",
            )
        return shard

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"

    def has(self, route: str) -> bool:
        """Whether records of a route are its own: the same route is always in the same shard."""
        return crc32(route.encode("utf-8", "surrogatepass")) % self.of == self.number - 1


@dataclass(frozen=True)
class Stream:
    """One stream of batches of a pipeline: its only one, or that of a shard."""

    name: str
    """In the ledger, the lock and the checkpoint."""
    shard: Shard | None = None
    start: Any = None
    """Where it begins in the source; None for the `start` of the source."""
    source_ids: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Ids of the topics, or of the table, that the start counts in."""

    @property
    def is_first(self) -> bool:
        """Whether it updates what does not belong to a single route."""
        return self.shard is None or self.shard.number == 1

    def has(self, route: str | None) -> bool:
        return self.shard is None or (route is not None and self.shard.has(route))
