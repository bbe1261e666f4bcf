"""How changes become rows."""

from __future__ import annotations

from pydantic import Field

from headgate.pipeline.declared import Declared
from headgate.pipeline.duration import Duration
from headgate.pipeline.size import Size


class Merge(Declared):
    """When and how the merged tables follow their change logs."""

    every: Duration | None = None
    """How often changes are merged; with each batch unless it is given."""

    metadata: bool = Field(default=True, strict=True)
    """Whether merged rows carry what is known of their last change."""

    horizon: Duration = Duration(days=3650)
    """How long deleted rows are remembered, by the source's time; later changes of them go to
    the quarantine."""

    spark_above: Size = Size.parse("2 GB")
    """Larger tables are merged by Spark."""
