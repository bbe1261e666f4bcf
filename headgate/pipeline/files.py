"""A folder of change files as the source."""

from __future__ import annotations

from pydantic import Field

from headgate.pipeline.declared import Declared
from headgate.pipeline.duration import Duration
from headgate.pipeline.moment import Moment
from headgate.pipeline.place import Place
from headgate.pipeline.size import Size
from headgate.pipeline.source_pattern import SourcePatterns, matching


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
