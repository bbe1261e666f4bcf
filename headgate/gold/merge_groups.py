"""Merges the groups of new rows into derived tables, of which only these groups are written.

It all happens on the driver, because there is little of it. Spark merges what Arrow cannot.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from headgate.config.location import is_remote
from headgate.gold.commit import TABLE, Committed, Derivation
from headgate.gold.spark_rows import Views, in_types
from headgate.gold.states import can_merge, merge_states
from headgate.lake.commit import Committer, FoundRows, MergeCommit, MergeRule
from headgate.lake.kept_rows import KeptRows
from headgate.lake.key_index import KeyIndex
from headgate.lake.merge import find_rows
from headgate.sql.incremental import Incremental

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


_IN_OBJECT_STORE = 4
"""Tables of an object store that are merged at the same time.

On disk it is one: Python runs most of a merge in one thread at a time, and landing would wait for
its turn behind all of them.
"""


@dataclass(frozen=True)
class GroupMerger:
    """Merges groups into the tables of one declared query."""

    spark: SparkSession
    committer: Committer
    states: Incremental
    kept: KeptRows
    """Rows of the derived tables that are kept from batch to batch."""

    def merge(
        self, new: DataFrame, derivations: Sequence[Derivation], views: Views
    ) -> Iterator[Committed]:
        """Merge the states of new rows, which have the indexes of their tables."""
        states = new.toArrow()
        groups = [
            states.filter(pc.equal(states[TABLE], index)).drop_columns(TABLE)
            for index in range(len(derivations))
        ]
        results: list[Committed | None] = [None] * len(derivations)
        if can_merge(self.states, states.schema):
            threads = _IN_OBJECT_STORE if is_remote(self.committer.lake) else 1
            with ThreadPoolExecutor(threads) as pool:
                results = list(pool.map(self._merge_in_memory, derivations, groups))
            yield from filter(None, results)
        left = [index for index, one in enumerate(results) if one is None]
        if left:
            yield from self._merge_by_spark(
                [derivations[index] for index in left],
                [groups[index] for index in left],
                new.schema,
                views,
            )

    def _merge_in_memory(self, derivation: Derivation, groups: pa.Table) -> Committed | None:
        """Return None if only Spark can merge these groups."""
        keys = KeyIndex(groups, self._keys)
        try:
            found = self._find(derivation, keys, groups)
            merged = merge_states(self.states, groups, keys, found.rows)
        except pa.ArrowInvalid:
            return None  # a sum is too large
        except Exception as error:  # must not fail the other tables
            return Committed.failed(derivation.table, error)
        return self._commit(derivation, merged, found)

    def _merge_by_spark(
        self,
        derivations: Sequence[Derivation],
        groups: Sequence[pa.Table],
        schema: StructType,
        views: Views,
    ) -> Iterator[Committed]:
        found = [
            self._find(derivation, KeyIndex(rows, self._keys), rows)
            for derivation, rows in zip(derivations, groups, strict=True)
        ]
        both = [
            rows.cast(groups[0].schema).append_column(TABLE, pa.repeat(index, len(rows)))
            for one in (groups, [existing.rows for existing in found])
            for index, rows in enumerate(one)
        ]
        # Spark drops what comes after an empty chunk.
        states = pa.concat_tables(both).select(schema.names).combine_chunks()
        view = views.add(self.spark.createDataFrame(states, schema).coalesce(1))
        merged = views.add(in_types(self.spark.sql(self.states.merge_sql(view)), schema))
        result = self.spark.sql(self.states.outputs_sql(merged)).toArrow()
        for index, (derivation, existing) in enumerate(zip(derivations, found, strict=True)):
            yield self._commit(derivation, result.filter(pc.equal(result[TABLE], index)), existing)

    def _find(self, derivation: Derivation, keys: KeyIndex, groups: pa.Table) -> FoundRows:
        """Return the rows of the table that have the same keys as groups."""
        assert derivation.before is not None
        return find_rows(derivation.before, keys, groups.column_names, self.kept)

    def _commit(self, derivation: Derivation, rows: pa.Table, found: FoundRows) -> Committed:
        # The table may have columns that others have added.
        schema = pa.schema(
            [field for field in found.table.schema if field.name in rows.column_names]
        )
        try:
            merge = MergeCommit(
                derivation.table,
                rows.select(schema.names).cast(schema),
                MergeRule(self._keys),
                derivation.marks,
                based_on=found,
            )
            version = self.committer.merge(merge).version
        except Exception as error:  # must not fail the other tables
            return Committed.failed(derivation.table, error)
        return Committed(derivation.table, len(rows), version)

    @property
    def _keys(self) -> tuple[str, ...]:
        return tuple(one.name for one in self.states.keys)
