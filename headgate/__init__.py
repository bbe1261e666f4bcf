"""Headgate lands streams whose schemas keep changing in Delta Lake, one table per kind of record.

import headgate

pipeline = headgate.load("games.yaml")
print(pipeline.run())
pipeline.status()
pipeline.read("silver_chess")
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headgate.config import (
        Catalog,
        Confluent,
        Contract,
        Datastream,
        Delta,
        Duration,
        Expectation,
        Files,
        Finding,
        GoldQuery,
        GoldUnion,
        Grant,
        InvalidPipeline,
        Kafka,
        Merge,
        Mode,
        Predict,
        PredictTo,
        Registry,
        Secret,
        Security,
        Size,
        TableRules,
        Train,
        UnknownFields,
        Wrapper,
    )
    from headgate.engine.events import BatchLanded, Event, SchemaChanged
    from headgate.errors import HeadgateError
    from headgate.notebook import Rows
    from headgate.pipeline import Pipeline, Quarantine, load
    from headgate.run_result import RunResult
    from headgate.sources.stop_signal import StopSignal

__version__ = "0.1.0"

_HOME = {
    "headgate.config": (
        "Catalog",
        "Confluent",
        "Contract",
        "Datastream",
        "Delta",
        "Duration",
        "Expectation",
        "Files",
        "Finding",
        "GoldQuery",
        "GoldUnion",
        "Grant",
        "InvalidPipeline",
        "Kafka",
        "Merge",
        "Mode",
        "Predict",
        "PredictTo",
        "Registry",
        "Secret",
        "Security",
        "Size",
        "TableRules",
        "Train",
        "UnknownFields",
        "Wrapper",
    ),
    "headgate.engine.events": ("BatchLanded", "Event", "SchemaChanged"),
    "headgate.errors": ("HeadgateError",),
    "headgate.notebook": ("Rows",),
    "headgate.pipeline": ("Pipeline", "Quarantine", "load"),
    "headgate.run_result": ("RunResult",),
    "headgate.sources.stop_signal": ("StopSignal",),
}
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names}

__all__ = [
    "BatchLanded",
    "Catalog",
    "Confluent",
    "Contract",
    "Datastream",
    "Delta",
    "Duration",
    "Event",
    "Expectation",
    "Files",
    "Finding",
    "GoldQuery",
    "GoldUnion",
    "Grant",
    "HeadgateError",
    "InvalidPipeline",
    "Kafka",
    "Merge",
    "Mode",
    "Pipeline",
    "Predict",
    "PredictTo",
    "Quarantine",
    "Registry",
    "Rows",
    "RunResult",
    "SchemaChanged",
    "Secret",
    "Security",
    "Size",
    "StopSignal",
    "TableRules",
    "Train",
    "UnknownFields",
    "Wrapper",
    "load",
]


def __getattr__(name: str) -> Any:
    """Import on first use, so that `headgate --help` loads nothing that it does not need."""
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'headgate' has no attribute {name!r}")
    return getattr(import_module(_MODULE_OF[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
