"""Sources: Kafka topics, a Delta table, or change files."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from headgate.config.kafka import Kafka
from headgate.config.location import Location
from headgate.config.model import ConfigModel, OneOf
from headgate.config.names import SourcePatterns, matching
from headgate.config.units import Duration, Size, Timestamp
from headgate.errors import InvalidPipeline, did_you_mean, shown


class Files(ConfigModel):
    """A folder of change files, in Avro or JSON."""

    path: Location = Field(examples=["./landing"])
    """Folder of the files, or its URL."""

    include: SourcePatterns = Field(default=(), examples=[["shop.*"]])
    """Source tables to read, as `database.table` patterns. Defaults to all."""

    exclude: SourcePatterns = Field(default=(), examples=[["*.audit"]])
    """Source tables to skip, as `database.table` patterns. Takes precedence over `include`."""

    start: Timestamp = None
    """Skip older files, by the time in their path or else by their modification time."""

    files_per_batch: int = Field(default=1000, strict=True, gt=0, lt=2**31)
    """Maximum number of files per batch."""

    bytes_per_batch: Size = Size.parse("512 MB")
    """Maximum bytes per batch. A larger file is a batch of its own."""

    settle: Duration = Duration(minutes=10)
    """How long a file that ends inside a record is assumed to be still being written."""

    def takes(self, name: str) -> bool:
        """Whether to read a source table, given as `database.table`."""
        included = not self.include or matching(name, self.include) is not None
        return included and matching(name, self.exclude) is None


_WORDS = ("earliest", "latest")


def _read_version(value: object) -> int | str:
    match value:
        case "earliest" | "latest":
            return str(value)
        case int() if not isinstance(value, bool) and value >= 0:
            return value
        case _:
            question = did_you_mean(value, _WORDS) if isinstance(value, str) else None
            raise InvalidPipeline(
                "bad-value",
                f"cannot be {shown(value)}",
                question or "use `earliest`, `latest`, or a version of the table such as `0`",
            )


TableVersion = Annotated[
    int | Literal["earliest", "latest"],
    BeforeValidator(_read_version, json_schema_input_type=int | Literal["earliest", "latest"]),
]


class Delta(ConfigModel):
    """A Delta table of records, read as a stream."""

    path: Location = Field(examples=["./inbox"])
    """Folder of the table, or its URL."""

    start: TableVersion = "earliest"
    """Where the first run starts: `earliest` (all rows), `latest` (only new rows), or a version."""

    batch: Size = Size.parse("512 MB")
    """Maximum bytes per batch."""


class SourceKeys(OneOf):
    """The `source` key of the file."""

    kafka: Kafka | None = None
    delta: Delta | None = None
    files: Files | None = None


SourceField = Annotated[Kafka | Delta | Files, SourceKeys.as_field()]
