"""What pipelines did and how they stand, as values: the command line and the page show them."""

from __future__ import annotations

from headgate.inspect.check import Check, State
from headgate.inspect.current_run import CurrentRun, find_current_run
from headgate.inspect.quarantined_records import (
    QuarantinedRecord,
    find_quarantined,
    read_quarantined,
)
from headgate.inspect.record_position import Position
from headgate.inspect.recorded_change import RecordedChange
from headgate.inspect.status import Status, read_status
from headgate.inspect.table_schema import TableSchema, read_table_schema
from headgate.inspect.tables import TableSummary, read_tables

__all__ = [
    "Check",
    "CurrentRun",
    "Position",
    "QuarantinedRecord",
    "RecordedChange",
    "State",
    "Status",
    "TableSchema",
    "TableSummary",
    "find_current_run",
    "find_quarantined",
    "read_quarantined",
    "read_status",
    "read_table_schema",
    "read_tables",
]
