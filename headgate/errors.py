"""Errors that a user can act on: a stable code, what happened, where, and a hint.

HeadgateError
├── PipelineFileError    the pipeline file is invalid
├── UsageError           the command was called incorrectly
├── SetupError           Java, jars, a port or a local service is missing or unusable
├── SourceError          the source cannot be read
├── RegistryError        the registry cannot answer a request
│   └── RegistryUnavailable    (transient) it is down, slow or responds with garbage
├── StorageError         the object storage cannot be reached, or refuses a request
├── CatalogError         the catalog cannot be reached, or refuses a table
│   └── CatalogUnavailable     (transient) it does not answer
├── WorkflowError        a workflow cannot be installed, started or found
├── CheckpointError      checkpoint and ledger do not match, or are in use
└── LandingError         a batch or a table could not be committed, or cannot be read
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from difflib import get_close_matches
from typing import Self

CODES: dict[str, str] = {
    # the pipeline file
    "file-not-found": "The pipeline file does not exist or cannot be read.",
    "not-yaml": "The pipeline file is not valid YAML.",
    "unknown-key": "The pipeline file has an unknown key.",
    "missing-key": "A required key is missing.",
    "duplicate-key": "A mapping has the same key twice.",
    "wrong-type": "A value has the wrong type.",
    "bad-value": "A value has the right type but is not valid.",
    "bad-choice": "A value is not one of the allowed words.",
    "choose-one": "Exactly one of several keys must be given.",
    "bad-template": "A table name template has a missing or unknown placeholder.",
    "bad-sql": "SQL in the pipeline file cannot be parsed, or uses something unsupported.",
    "bad-proto": "The wrapper's .proto file cannot be compiled, or has no such message or field.",
    "secret-in-file": "The pipeline file contains a secret instead of a reference to it.",
    "secret-missing": "A secret that the pipeline file refers to is missing.",
    "insecure-option": "A Kafka option is not allowed because it can run code or read files.",
    # the command
    "bad-argument": "A command got a missing or invalid argument.",
    "already-exists": "A file, folder or table to be created already exists.",
    # set-up
    "java-missing": "Java 17 or newer was not found.",
    "jars-missing": "Jars could not be fetched.",
    "jar-changed": "A fetched jar does not have its recorded checksum.",
    "extra-missing": "A command needs packages of an extra, such as `headgate[lab]`.",
    "database-missing": "The MariaDB server is not installed.",
    "object-store-missing": "The S3 gateway is not installed, and cannot be built.",
    "airflow-missing": "Airflow could not be installed.",
    "pack-failed": "The packages for executors on other machines could not be packed.",
    "cluster-unavailable": "The cluster cannot be reached, or refuses the application.",
    "executors-unfit": "Executors have no suitable Python, or lack packages.",
    "folder-not-shared": "Executors cannot use a folder or file of the driver's machine.",
    "port-in-use": "A port is used by another program.",
    "service-failed": "A local service did not start or did not respond in time.",
    "services-stale": "Local services are recorded as running but do not respond.",
    # the source
    "source-missing": "The topic, table or folder does not exist or cannot be reached.",
    "data-lost": "The source dropped records before they were read, or was created again.",
    # the registry
    "registry-unavailable": "The registry is down, slow or responds with garbage.",
    "registry-refused": "The registry refused the request.",
    "schema-unknown": "The registry has no schema with this id.",
    "schema-refused": "A schema cannot be compiled or is too large.",
    "schema-withheld": "A new schema would not be applied as it is (`headgate plan --strict`).",
    # the storage
    "storage-unreachable": "The object storage does not answer.",
    "storage-refused": "The object storage refuses the credentials, or what they may not do.",
    "bucket-missing": "The object storage has no such bucket or container.",
    "storage-unsafe": "The object storage has no conditional put, which commits need.",
    # the catalog
    "catalog-unavailable": "The catalog cannot be reached; the run goes on, and retries.",
    "catalog-refused": "The catalog refuses a table, or has another table under its name.",
    "grant-refused": "The catalog refuses to list, grant or revoke a privilege.",
    "grants-unsupported": "The catalog has no grants.",
    "grants-differ": "Grants in the catalog are not as declared (`headgate grants plan --strict`).",
    # workflows
    "scheduler-unavailable": "The scheduler of a workflow cannot be reached.",
    "scheduler-refused": "The scheduler refuses a request.",
    "workflow-missing": "The workflow is not installed, or has no run to repair.",
    "workflow-running": "The workflow is already running on this machine.",
    # checkpoint and ledger
    "checkpoint-reset": "The ledger has batches that the checkpoint does not have.",
    "checkpoint-foreign": "The checkpoint has progress that the lake's ledger does not have.",
    "lineages-changed": "Changes have landed in a different order of lineages than is declared.",
    "pipeline-in-use": "The pipeline is already running.",
    "shards-apart": "The shards of a pipeline end at different places in the source.",
    "shards-unfinished": "A batch of a pipeline with another number of shards is not finished.",
    "lake-behind": "The checkpoint has batches that the lake's ledger does not have.",
    "lake-without-ledger": "The lake has tables of this pipeline but no ledger.",
    "table-ahead": "A table has a batch that checkpoint and ledger do not have.",
    "batch-out-of-order": "The checkpoint is ahead of the lake's ledger, or of another lake.",
    "ledger-ahead": "Another run has completed a batch meanwhile.",
    "run-replaced": "Another run has taken over the pipeline.",
    "replay-impossible": "The ledger does not have a position in the source to continue from.",
    # landing
    "batch-failed": "A batch could not be landed; the next run retries it.",
    "expectation-failed": "Rows break a rule of `expect` that has `on_fail: fail`.",
    "table-pending": "A table could not be committed; the next batch retries it.",
    "table-unknown": "The lake has no such table.",
    "table-catalog-managed": "Only the catalog of a table knows its newest version.",
    "column-reserved": "A change log has a column with a name that its history table needs.",
    "bad-query": "A query cannot be parsed, or uses something that its tables do not have.",
    "query-timeout": "A query has run for as long as `headgate serve` lets it.",
    "query-too-large": "A query needs more memory than `headgate serve` gives it.",
    "bad-token": "A token is not one of this query over these tables.",
    "table-replaced": "A table has been dropped or replaced while a query was reading it.",
    "version-vacuumed": "A version of a table was deleted before a query had read it.",
    "not-authorized": "A request to `headgate serve` has no valid token, or is of a foreign page.",
    "too-many-readers": "`headgate serve` has as many readers as it may have.",
    "topic-unfit": "The schema of a topic cannot hold predictions.",
    "model-missing": "The registry of models has no such model or version.",
    "models-unavailable": "The registry of models cannot be reached, read or written.",
    "model-unfit": "A model cannot be loaded, or does not fit the features.",
    "labels-unfit": "The labels do not have what training needs.",
    "name-unknown": "No table or subject has that name.",
    "lake-unreadable": "The lake or its ledger cannot be read.",
    "record-unknown": "The quarantine has no such record.",
    "quarantine-in-use": "Another replay or drop of the same quarantine is running.",
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
        """The arguments that recreate the error in another process."""
        return self.code, self.message, self.hint, self.where

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), self.parts


class PipelineFileError(HeadgateError):
    """The pipeline file is invalid."""


class UsageError(HeadgateError):
    """The command was called incorrectly."""

    exit_code = 2


class SetupError(HeadgateError):
    """Java, jars, a port or a local service is missing or unusable."""


def extra_missing(extra: str, packages: Sequence[str]) -> SetupError:
    """Return the error for packages of an extra that are not installed."""
    are = "is" if len(packages) == 1 else "are"
    return SetupError(
        "extra-missing",
        f"this needs {', '.join(packages)}, which {are} not installed",
        hint=f'pip install "headgate[{extra}]"',
    )


class SourceError(HeadgateError):
    """The source cannot be read."""


class RegistryError(HeadgateError):
    """The registry cannot answer a request."""


class RegistryUnavailable(RegistryError):
    """The registry is down, slow or responds with garbage; a retry may succeed."""


class StorageError(HeadgateError):
    """The object storage cannot be reached, or refuses a request."""


class CatalogError(HeadgateError):
    """The catalog cannot be reached, or refuses a table."""


class CatalogUnavailable(CatalogError):
    """The catalog does not answer; a retry may succeed."""


class WorkflowError(HeadgateError):
    """A workflow cannot be installed, started or found."""


class CheckpointError(HeadgateError):
    """Checkpoint and ledger do not match, or are in use."""


class LandingError(HeadgateError):
    """A batch or a table could not be committed, or cannot be read."""


@dataclass(frozen=True)
class Finding:
    """One problem in a pipeline.

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
        """The location in the form that editors and terminals link: `games.yaml:3:5`."""
        parts = (self.file, self.line, self.column)
        return ":".join(str(part) for part in parts if part is not None) or None


class InvalidPipeline(PipelineFileError, ValueError):
    """An invalid pipeline, or an invalid value in one.

    Its message is that of the first finding; `findings` has all of them, in the order of the
    file. It is a ValueError so that pydantic collects it and runs the remaining validators.
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
        """Line and column within a multi-line value, such as SQL."""

    @classmethod
    def because_of(cls, findings: Iterable[Finding]) -> Self:
        findings = tuple(findings)
        first = findings[0]
        return cls(first.code, first.message, first.hint, first.where, findings)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (*self.parts, self.findings, self.inside)


_CREDENTIALS = re.compile(r"[^\s/@]*:\S*@")
_MAX_QUOTED = 60


def first_line(error: Exception) -> str:
    """Return the kind of an error and the first line of its message, which may have many more."""
    return f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"


def shown(value: object) -> str:
    """Return a value as a message may quote it: short, printable, without credentials."""
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
            return f"`{text if len(text) <= _MAX_QUOTED else text[:_MAX_QUOTED] + '…'}`"
        case _:
            return f"a {type(value).__name__}"


def listed(words: Iterable[object]) -> str:
    return ", ".join(f"`{word}`" for word in words)


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return the known word closest to a mistyped one, if any is close enough."""
    by_lower_case = {each.lower(): each for each in known}
    near = get_close_matches(word.lower(), by_lower_case, n=1, cutoff=0.7)
    return by_lower_case[near[0]] if near else None


def did_you_mean(word: str, known: Iterable[str]) -> str | None:
    meant = nearest(word, known)
    return f"did you mean `{meant}`?" if meant else None
