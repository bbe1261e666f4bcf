"""What pipelines did and how they stand, as values: the command line and the page show them."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from headgate.inspect.check import Check, State
from headgate.inspect.current_run import CurrentRun, find_current_run
from headgate.inspect.quarantined_records import (
    QuarantineCounts,
    QuarantinedRecord,
    count_quarantined,
    find_quarantined,
    read_quarantined,
)
from headgate.inspect.record_position import FilePosition, Position
from headgate.inspect.recorded_change import RecordedChange
from headgate.inspect.status import Status, read_status
from headgate.inspect.table_schema import TableSchema, read_table_schema
from headgate.inspect.tables import TableSummary, read_tables

if TYPE_CHECKING:
    from headgate.inspect.named_schema import NamedSchema, is_schema_file
    from headgate.inspect.plan import read_plan
    from headgate.inspect.planned import Plan, TablePlan, UnusableSchema
    from headgate.inspect.schema_diff import SchemaDiff, read_schema_diff

_HOME = {
    "NamedSchema": "headgate.inspect.named_schema",
    "Plan": "headgate.inspect.planned",
    "SchemaDiff": "headgate.inspect.schema_diff",
    "TablePlan": "headgate.inspect.planned",
    "UnusableSchema": "headgate.inspect.planned",
    "is_schema_file": "headgate.inspect.named_schema",
    "read_plan": "headgate.inspect.plan",
    "read_schema_diff": "headgate.inspect.schema_diff",
}

__all__ = [
    "Check",
    "CurrentRun",
    "FilePosition",
    "NamedSchema",
    "Plan",
    "Position",
    "QuarantineCounts",
    "QuarantinedRecord",
    "RecordedChange",
    "SchemaDiff",
    "State",
    "Status",
    "TablePlan",
    "TableSchema",
    "TableSummary",
    "UnusableSchema",
    "count_quarantined",
    "find_current_run",
    "find_quarantined",
    "is_schema_file",
    "read_plan",
    "read_quarantined",
    "read_schema_diff",
    "read_status",
    "read_table_schema",
    "read_tables",
]


def __getattr__(name: str) -> Any:
    """On first use: who asks how a pipeline stands should not wait for decoders of schemas."""
    if name not in _HOME:
        raise AttributeError(f"module 'headgate.inspect' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
