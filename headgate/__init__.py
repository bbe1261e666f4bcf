"""Headgate lands streams whose schemas keep changing in Delta Lake, one table per kind of record.

from headgate import Delta, Pipeline, RunOptions, Wrapper, run_pipeline

pipeline = Pipeline(
    name="games",
    source=Delta(path="./inbox"),
    registry="./schemas",
    envelope=Wrapper(
        message="wrapper", route="game_name", schema_id="schema_id", payload="payload"
    ),
    lake="./lake",
)
run_pipeline(pipeline, RunOptions(once=True))
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headgate.config import (
        Confluent,
        Contract,
        Delta,
        Kafka,
        Pipeline,
        Registry,
        Secret,
        Security,
        Wrapper,
        check_pipeline,
        load_pipeline,
    )
    from headgate.engine.runner import RunOptions
    from headgate.errors import HeadgateError
    from headgate.quarantine.operations import replay_quarantine
    from headgate.run import run_pipeline

__version__ = "0.1.0"

_HOME = {
    "Confluent": "headgate.config",
    "Contract": "headgate.config",
    "Delta": "headgate.config",
    "HeadgateError": "headgate.errors",
    "Kafka": "headgate.config",
    "Pipeline": "headgate.config",
    "Registry": "headgate.config",
    "RunOptions": "headgate.engine.runner",
    "Secret": "headgate.config",
    "Security": "headgate.config",
    "Wrapper": "headgate.config",
    "check_pipeline": "headgate.config",
    "load_pipeline": "headgate.config",
    "replay_quarantine": "headgate.quarantine.operations",
    "run_pipeline": "headgate.run",
}

__all__ = [
    "Confluent",
    "Contract",
    "Delta",
    "HeadgateError",
    "Kafka",
    "Pipeline",
    "Registry",
    "RunOptions",
    "Secret",
    "Security",
    "Wrapper",
    "check_pipeline",
    "load_pipeline",
    "replay_quarantine",
    "run_pipeline",
]


def __getattr__(name: str) -> Any:
    """On first use, so that `headgate --help` loads nothing that it does not need."""
    if name not in _HOME:
        raise AttributeError(f"module 'headgate' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
