"""Where a record stands in its source, in one word: `games:0:12`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from headgate.errors import UsageError


@dataclass(frozen=True)
class Position:
    """Topic, partition and offset of a record."""

    topic: str
    partition: int
    offset: int

    @classmethod
    def parse(cls, text: str) -> Self:
        topic, *numbers = text.rsplit(":", 2)
        if topic and len(numbers) == 2 and all(each.isdecimal() for each in numbers):
            return cls(topic, int(numbers[0]), int(numbers[1]))
        raise UsageError(
            "bad-argument",
            f"`{text}` is not the position of a record",
            hint="write topic:partition:offset as `headgate quarantine list` does: games:0:12",
        )

    def __str__(self) -> str:
        return f"{self.topic}:{self.partition}:{self.offset}"
