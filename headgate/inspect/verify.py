"""Everything that `headgate verify` compares: landed tables with the ledger, and merged and history
tables with their change logs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headgate.cdc.source_tables import find_source, known_sources
from headgate.cdc.verify import TableVerified, verify
from headgate.config import PipelineConfig
from headgate.inspect.landed_rows import LandedRows, read_landed_rows
from headgate.inspect.ledger import open_ledger
from headgate.inspect.schema import find_table, nearest_table, unknown_table
from headgate.notebook import ResultView

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Verified(ResultView):
    """The tables of a pipeline, compared; iteration yields both kinds."""

    landed: tuple[LandedRows, ...]
    """Tables that records or changes land in, and the rows that are missing or extra."""
    merged: tuple[TableVerified, ...] = ()
    """Merged and history tables of change files, and their differences from their logs."""

    @property
    def is_ok(self) -> bool:
        return all(table.is_ok for table in self)

    def __iter__(self) -> Iterator[LandedRows | TableVerified]:
        yield from self.landed
        yield from self.merged

    def __len__(self) -> int:
        return len(self.landed) + len(self.merged)


def read_verified(
    pipeline: PipelineConfig,
    tables: Sequence[str] = (),
    *,
    spark: Callable[[], SparkSession] | None = None,
) -> Verified:
    """Compare all tables, or those that some names mean: of tables, routes or source tables."""
    if not pipeline.lands_changes:
        wanted = _landed_tables(pipeline, tables) if tables else None
        return Verified(tuple(read_landed_rows(pipeline, wanted)))
    if not tables:
        landed = read_landed_rows(pipeline)
        return Verified(tuple(landed), tuple(verify(pipeline, spark=spark)))
    own = {*tables} & {*pipeline.own_tables.values()}
    names = [name for name in tables if name not in own]
    sources = known_sources(pipeline) if names else []
    logs = {find_source(sources, name).log for name in names}
    merged = verify(pipeline, names, spark=spark) if names else ()
    return Verified(tuple(read_landed_rows(pipeline, own | logs)), tuple(merged))


def _landed_tables(pipeline: PipelineConfig, names: Sequence[str]) -> set[str]:
    known = open_ledger(pipeline).landed
    found = set()
    for name in names:
        table = find_table(pipeline, name, known)
        if table is None:
            raise unknown_table(pipeline, name, nearest_table(pipeline, name, list(known)))
        found.add(table)
    return found
