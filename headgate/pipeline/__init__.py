"""Pipelines as values: what one YAML file says, checked and frozen. Nothing here runs anything."""

from __future__ import annotations

from headgate.pipeline.contract import Contract, Mode, Rules
from headgate.pipeline.delta import Delta
from headgate.pipeline.duration import Duration
from headgate.pipeline.envelope import Confluent, Wrapper
from headgate.pipeline.finding import Finding, InvalidPipeline
from headgate.pipeline.json_schema import pipeline_json_schema
from headgate.pipeline.kafka import Kafka
from headgate.pipeline.kafka_security import Security
from headgate.pipeline.load import check_pipeline, load_pipeline
from headgate.pipeline.pipeline import Pipeline
from headgate.pipeline.registry import Registry
from headgate.pipeline.secret import Secret
from headgate.pipeline.size import Size

__all__ = [
    "Confluent",
    "Contract",
    "Delta",
    "Duration",
    "Finding",
    "InvalidPipeline",
    "Kafka",
    "Mode",
    "Pipeline",
    "Registry",
    "Rules",
    "Secret",
    "Security",
    "Size",
    "Wrapper",
    "check_pipeline",
    "load_pipeline",
    "pipeline_json_schema",
]
