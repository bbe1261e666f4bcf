"""What pipelines did and how they stand, as values: the command line and the page show them."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from headgate.inspect.doctor import Check, State
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
    from headgate.inspect.plan import read_plan
    from headgate.inspect.planned import Plan, TablePlan, UnusableSchema
    from headgate.inspect.schema_diff import (
        NamedSchema,
        SchemaDiff,
        is_schema_file,
        read_schema_diff,
    )

_HOME = {
    "NamedSchema": "headgate.inspect.schema_diff",
    "Plan": "headgate.inspect.planned",
    "SchemaDiff": "headgate.inspect.schema_diff",
    "TablePlan": "headgate.inspect.planned",
    "UnusableSchema": "headgate.inspect.planned",
    "is_schema_file": "headgate.inspect.schema_diff",
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
