"""What pipelines did and how they are doing, as values for the command line and the page."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from headgate.inspect.doctor import Check, CheckState
from headgate.inspect.ledger import RecordedChange
from headgate.inspect.quarantine import (
    FilePosition,
    Position,
    QuarantineCounts,
    QuarantinedRecord,
    count_quarantined,
    find_quarantined,
    read_quarantined,
)
from headgate.inspect.schema import TableSchema, read_table_schema
from headgate.inspect.status import CurrentRun, Status, find_current_run, read_status
from headgate.inspect.tables import TableSummary, read_tables

if TYPE_CHECKING:
    from headgate.inspect.plan import PipelinePlan, TablePlan, UnusableSchema, read_plan
    from headgate.inspect.schema_diff import (
        NamedSchema,
        SchemaDiff,
        is_schema_file,
        read_schema_diff,
    )

_LAZY = {
    "NamedSchema": "headgate.inspect.schema_diff",
    "PipelinePlan": "headgate.inspect.plan",
    "SchemaDiff": "headgate.inspect.schema_diff",
    "TablePlan": "headgate.inspect.plan",
    "UnusableSchema": "headgate.inspect.plan",
    "is_schema_file": "headgate.inspect.schema_diff",
    "read_plan": "headgate.inspect.plan",
    "read_schema_diff": "headgate.inspect.schema_diff",
}

__all__ = [
    "Check",
    "CheckState",
    "CurrentRun",
    "FilePosition",
    "NamedSchema",
    "PipelinePlan",
    "Position",
    "QuarantineCounts",
    "QuarantinedRecord",
    "RecordedChange",
    "SchemaDiff",
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
    """Import on first use: decoders are slow to import, and most readers need none."""
    if name not in _LAZY:
        raise AttributeError(f"module 'headgate.inspect' has no attribute {name!r}")
    return getattr(import_module(_LAZY[name]), name)
