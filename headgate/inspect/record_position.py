"""Where a record stands in its source, in one word: `games:0:12`, or `landing/a.avro:12`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from headgate.errors import UsageError
from headgate.quarantine.quarantine_filter import OffsetRange, QuarantineFilter


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

    def condition(self) -> str:
        """Whether a row of the quarantine is the record, in SQL."""
        offsets = OffsetRange(self.topic, self.partition, self.offset, self.offset)
        return QuarantineFilter(offsets=offsets, state=None).condition()


@dataclass(frozen=True)
class FilePosition:
    """A change file, and which of its changes, if not all of it."""

    file: str
    offset: int | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        file, _, number = text.rpartition(":")
        if file and number.isdecimal():
            return cls(file, int(number))
        if text:
            return cls(text)
        raise UsageError(
            "bad-argument",
            "a record needs a name",
            hint="write it as `headgate quarantine list` does: a path, or path:number",
        )

    def __str__(self) -> str:
        return self.file if self.offset is None else f"{self.file}:{self.offset}"

    def condition(self) -> str:
        """Whether a row of the quarantine is the change, or any change of the file; in SQL."""
        of_file = QuarantineFilter(file=self.file, state=None).condition()
        return of_file if self.offset is None else f"{of_file} AND _offset = {self.offset}"
