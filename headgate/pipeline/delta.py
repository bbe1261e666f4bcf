"""A Delta table as the source."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from headgate.pipeline.declared import Declared
from headgate.pipeline.finding import InvalidPipeline
from headgate.pipeline.place import Place
from headgate.pipeline.size import Size
from headgate.pipeline.wording import did_you_mean, shown

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
                question or "it can be `earliest`, `latest`, or a version of the table such as `0`",
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
