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

from dataclasses import dataclass

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
    "java-missing": "Java 17 or newer is not to be found.",
    "jars-missing": "Jars could not be fetched.",
    "jar-changed": "A fetched jar is not the one that was recorded.",
    "database-missing": "The MariaDB server is not installed.",
    "port-in-use": "A port is taken by another program.",
    "service-failed": "A local service did not start or did not answer in time.",
    "services-stale": "Local services are recorded as running but do not answer.",
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
