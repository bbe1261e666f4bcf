"""What can go wrong, as data: a stable code, what happened, where, and what to do about it.

HeadgateError
├── PipelineFileError    the pipeline file says something that cannot be run
├── UsageError           the command was called in a way that cannot work
├── SetupError           Java, jars, ports or local services are not as needed
├── SourceError          the source cannot be read
├── RegistryError        the registry cannot be asked
│   └── RegistryUnavailable    (transient) it is down, slow or answers nonsense
├── CheckpointError      checkpoint and ledger do not belong together, or are in use
└── LandingError         a batch or a table could not be landed
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from difflib import get_close_matches
from typing import Self

CODES: dict[str, str] = {
    # the pipeline file
    "file-not-found": "The pipeline file does not exist or cannot be read.",
    "not-yaml": "The pipeline file is not valid YAML.",
    "unknown-key": "The pipeline file has a key that Headgate does not know.",
    "missing-key": "A key that is needed is missing.",
    "duplicate-key": "The same key stands twice in one mapping.",
    "wrong-type": "A value has the wrong type.",
    "bad-value": "A value is of the right type but not one that can be used.",
    "bad-choice": "A value is not one of the words allowed there.",
    "choose-one": "Exactly one of several keys must be given.",
    "bad-template": "A table name template lacks its placeholder or has one that is unknown.",
    "bad-sql": "SQL in the pipeline file cannot be read, or asks for what it cannot have.",
    "bad-proto": "The wrapper's .proto file cannot be compiled or lacks the message or a field.",
    "secret-in-file": "A secret stands in the pipeline file instead of a reference to it.",
    "secret-missing": "A secret is referred to that is not there.",
    "insecure-option": "A Kafka option is not let through because it can run code or read files.",
    # the command
    "bad-argument": "A command was given an argument it cannot use.",
    "already-exists": "A file or folder that would be written exists already.",
    # set-up
    "java-missing": "Java 17 or newer is not installed.",
    "jars-missing": "Jars are missing and could not be downloaded.",
    "jar-changed": "A downloaded jar has the wrong checksum.",
    "database-missing": "The MariaDB server is not installed.",
    "extra-missing": "A command needs packages of an extra, such as `headgate[lab]`.",
    "port-in-use": "A port is in use by another program.",
    "service-failed": "A local service did not start or did not respond in time.",
    "services-stale": "Local services are running but do not respond.",
    # the source
    "source-missing": "The topic or the table does not exist or cannot be reached.",
    "data-lost": "The source no longer has records that were not yet read.",
    # the registry
    "registry-unavailable": "The registry is down, slow or answers nonsense.",
    "registry-refused": "The registry refused the request.",
    "schema-unknown": "The registry does not know a schema id.",
    "schema-refused": "A schema cannot be compiled or is too large.",
    "schema-withheld": "A newest schema would not land as it is (`headgate plan --strict`).",
    # checkpoint and ledger
    "checkpoint-reset": "The ledger knows batches that the checkpoint does not know.",
    "checkpoint-foreign": "The checkpoint has progress that the lake's ledger knows nothing of.",
    "lineages-changed": "Changes have landed in another order of lineages than is declared now.",
    "checkpoint-in-use": "Another run works on the same pipeline.",
    "lake-without-ledger": "The lake has tables of this pipeline but no ledger.",
    "table-ahead": "A table has a batch that checkpoint and ledger do not know yet.",
    "replay-impossible": "The ledger does not say where in the source to go on.",
    # landing
    "batch-failed": "A batch could not be landed; it is run again from the same place.",
    "expectation-failed": "Rows break a rule of `expect` that is to stop the batch.",
    "table-pending": "A table could not be committed; its files wait for the next batch.",
    "table-unknown": "There is no such table in the lake.",
    "name-unknown": "There is neither a table nor a subject of that name.",
    "lake-unreadable": "The lake or its ledger cannot be read.",
    "record-unknown": "There is no such record in quarantine.",
    "quarantine-in-use": "Another replay or drop works on the same quarantine.",
    "quarantine-unwritable": "Records could not be marked in the quarantine.",
}


@dataclass
class HeadgateError(Exception):
    """An error that a user can act on."""

    code: str
    message: str
    hint: str | None = None
    where: str | None = None

    exit_code = 1

    def __post_init__(self) -> None:
        if self.code not in CODES:
            raise AssertionError(f"{self.code!r} is not in the catalogue of error codes")
        super().__init__(self.message)

    def __str__(self) -> str:
        place = f"{self.where}: " if self.where else ""
        hint = f"\nhint: {self.hint}" if self.hint else ""
        return f"{place}{self.message} [{self.code}]{hint}"

    @property
    def parts(self) -> tuple[str, str, str | None, str | None]:
        """What makes the error again somewhere else."""
        return self.code, self.message, self.hint, self.where

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), self.parts


class PipelineFileError(HeadgateError):
    """The pipeline file says something that cannot be run."""


class UsageError(HeadgateError):
    """The command was called in a way that cannot work."""

    exit_code = 2


class SetupError(HeadgateError):
    """Java, jars, ports or local services are not as needed."""


class SourceError(HeadgateError):
    """The source cannot be read."""


class RegistryError(HeadgateError):
    """The registry cannot be asked."""


class RegistryUnavailable(RegistryError):
    """The registry is down, slow or answers nonsense: the same request may work later."""


class CheckpointError(HeadgateError):
    """Checkpoint and ledger do not belong together, or are in use."""


class LandingError(HeadgateError):
    """A batch or a table could not be landed."""


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


_CREDENTIALS = re.compile(r"[^\s/@]*:\S*@")
_LONGEST = 60


def shown(value: object) -> str:
    """A value as a message may repeat it."""
    match value:
        case None:
            return "nothing"
        case "":
            return "empty text"
        case bool():
            return f"`{str(value).lower()}`"
        case Mapping():
            return "a mapping"
        case list() | tuple():
            return "a list"
        case int() | float() | date():
            return f"`{value}`"
        case str():
            text = _CREDENTIALS.sub("***@", value)
            text = "".join(
                letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text
            )
            return f"`{text if len(text) <= _LONGEST else text[:_LONGEST] + '…'}`"
        case _:
            return f"a {type(value).__name__}"


def listed(words: Iterable[object]) -> str:
    return ", ".join(f"`{word}`" for word in words)


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that a mistyped one was meant to be, if it is near enough."""
    by_lower_case = {each.lower(): each for each in known}
    near = get_close_matches(word.lower(), by_lower_case, n=1, cutoff=0.7)
    return by_lower_case[near[0]] if near else None


def did_you_mean(word: str, known: Iterable[str]) -> str | None:
    meant = nearest(word, known)
    return f"did you mean `{meant}`?" if meant else None
