"""Whether a merged or history table is what its log says, in the memory of one process."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from deltalake import DeltaTable

from headgate.change.as_of import Until, rows_as_of
from headgate.change.change_log import ChangeLog
from headgate.change.compare_rows import RowDifferences, compare_rows
from headgate.change.history_table import all_versions, history_columns
from headgate.change.merged_columns import ORDER, merged_columns
from headgate.change.table_key import TableKey


def verify_merged(log: ChangeLog, table: DeltaTable) -> RowDifferences:
    """Against the log at the version that the table has everything of."""
    key = key_of(table)
    columns = comparable(table, columns_of_merged(log, table))
    return _compared(rows_as_of(log, key, Until()), table, columns, telling_apart(key))


def verify_history(log: ChangeLog, table: DeltaTable) -> RowDifferences:
    """The same for all versions: when each began and ended, and which are current."""
    key = key_of(table)
    schema = history_columns(log.schema, key)
    wanted = all_versions(log.changes(), key, schema, log.rows_by_id(key))
    return _compared(wanted, table, comparable(table, schema), (*key.columns, ORDER))


def key_of(table: DeltaTable) -> TableKey:
    """The key that a table was merged by."""
    return TableKey.kept_in(pa.schema(table.schema()))


def telling_apart(key: TableKey) -> tuple[str, ...]:
    """The columns by which rows are compared; without a key a row is a change, and has an order."""
    return key.columns or (ORDER,)


def columns_of_merged(log: ChangeLog, table: DeltaTable) -> pa.Schema:
    """Those that the table should have, with metadata if it was made with it."""
    has_order = ORDER in pa.schema(table.schema()).names
    return merged_columns(log.schema, key_of(table), metadata=has_order)


def comparable(table: DeltaTable, columns: pa.Schema) -> list[str]:
    """Columns that both have: a table may be ahead by columns that nothing has come for yet."""
    there = pa.schema(table.schema()).names
    return [name for name in columns.names if name in there]


def _compared(
    wanted: pa.Table, table: DeltaTable, columns: list[str], key: Sequence[str]
) -> RowDifferences:
    found = table.to_pyarrow_table(columns=columns)
    return compare_rows(wanted.select(columns), found, key)
