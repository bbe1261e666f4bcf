"""Maintenance of tables: when small files are combined, and for how long versions are kept."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field

from headgate.config.model import ConfigModel
from headgate.config.units import Duration, Size
from headgate.errors import InvalidPipeline, shown

_MAX_KEEP = Duration(days=30)
"""After that, Delta itself deletes entries of the log."""
_SMALLEST = Size.parse("1 MB")
_LARGEST = Size.parse("1 GB")


def _check_keep(keep: Duration) -> Duration:
    if keep > _MAX_KEEP:
        hint = "set `delta.logRetentionDuration` of a table, and leave it to Delta"
        raise InvalidPipeline("bad-value", f"cannot be more than {_MAX_KEEP}", hint)
    return keep


def _check_file_size(size: Size) -> Size:
    if not _SMALLEST <= size <= _LARGEST:
        raise InvalidPipeline("bad-value", f"is not between {_SMALLEST} and {_LARGEST}")
    return size


class Maintain(ConfigModel):
    """How tables are maintained, in the background of a run and by `headgate maintain`."""

    file_size: Annotated[Size, AfterValidator(_check_file_size)] = Size.parse("64 MB")
    """Size up to which small files are combined."""

    keep: Annotated[Duration, AfterValidator(_check_keep)] = Duration(days=7)
    """How long a version of a table can be read after a newer one has replaced it."""

    max_versions: int = Field(default=1000, strict=True, ge=20)
    """Number of versions that are kept, however new they are. A reader that is further behind has
    to start again."""


def _expand(given: object) -> object:
    match given:
        case bool():
            return {} if given else None
        case str():
            hint = "`maintain: true`, or the keys below it"
            raise InvalidPipeline("wrong-type", f"cannot be {shown(given)}", hint)
    return given


MaintainField = Annotated[
    Maintain | None, BeforeValidator(_expand, json_schema_input_type=Maintain | bool | None)
]
