"""What is wrong in a pipeline, and at which line of the file."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from headgate.errors import PipelineFileError


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong in a pipeline.

    A pipeline built in Python has no file: there `file`, `line` and `column` are None.
    """

    code: str
    message: str
    file: str | None = None
    line: int | None = None
    column: int | None = None
    hint: str | None = None

    @property
    def where(self) -> str | None:
        """The place as editors and terminals link it: `games.yaml:3:5`."""
        parts = (self.file, self.line, self.column)
        return ":".join(str(part) for part in parts if part is not None) or None


class InvalidPipeline(PipelineFileError, ValueError):
    """A pipeline, or a value in one, that cannot be run.

    It speaks of the first finding; `findings` holds all of them, in the order of the file.
    It is a ValueError so that a validator may raise it and the others still have their say.
    """

    def __init__(
        self,
        code: str,
        message: str,
        hint: str | None = None,
        where: str | None = None,
        findings: Iterable[Finding] = (),
        inside: tuple[int, int] | None = None,
    ) -> None:
        super().__init__(code, message, hint, where)
        self.findings = tuple(findings)
        self.inside = inside
        """The line and the column inside of a value that is a longer text, such as SQL."""

    @classmethod
    def because_of(cls, findings: Iterable[Finding]) -> Self:
        findings = tuple(findings)
        first = findings[0]
        return cls(first.code, first.message, first.hint, first.where, findings)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (*self.parts, self.findings, self.inside)
