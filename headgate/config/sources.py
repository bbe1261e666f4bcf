"""Where records or changes come from."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from headgate.config.kafka import Kafka
from headgate.config.location import Place
from headgate.config.model import Declared, OneOf
from headgate.config.names import SourcePatterns, matching
from headgate.config.units import Duration, Moment, Size
from headgate.errors import InvalidPipeline, did_you_mean, shown


class Files(Declared):
    """Change files, Avro and JSON, to which others add."""

    path: Place = Field(examples=["./landing"])
    """The folder of the files, or the URL of one in any file system."""

    include: SourcePatterns = Field(default=(), examples=[["shop.*"]])
    """The source's tables to read, as patterns of `database.table`; all if there are none."""

    exclude: SourcePatterns = Field(default=(), examples=[["*.audit"]])
    """The source's tables to leave out, even if `include` has them."""

    start: Moment = None
    """Older files are not read, by the time in their path or else by that of the file."""

    files_per_batch: int = Field(default=1000, strict=True, gt=0, lt=2**31)
    """The most files that one batch takes."""

    bytes_per_batch: Size = Size.parse("512 MB")
    """The most bytes that one batch takes; a larger file has a batch of its own."""

    settle: Duration = Duration(minutes=10)
    """How long a file that ends inside a record is taken for one that is still being written."""

    def takes(self, name: str) -> bool:
        """Whether a source's table, as `database.table`, is one to read."""
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


class Delta(Declared):
    """A Delta table to which others append records."""

    path: Place = Field(examples=["./inbox"])
    """The folder of the table, or its URL."""

    start: TableVersion = "earliest"
    """Where the first run begins: with all rows, with only new ones, or with those of a version."""

    batch: Size = Size.parse("512 MB")
    """The most bytes that one batch takes."""


class SourceKeys(OneOf):
    """The source as the file writes it."""

    kafka: Kafka | None = None
    delta: Delta | None = None
    files: Files | None = None


SourceField = Annotated[Kafka | Delta | Files, SourceKeys.as_field()]
