"""Pipelines as values: what one YAML file says, checked and frozen. Nothing here runs anything."""

from __future__ import annotations

from headgate.pipeline.any_pipeline import AnyPipeline
from headgate.pipeline.change_pipeline import ChangePipeline
from headgate.pipeline.contract import Contract, Mode, Rules
from headgate.pipeline.datastream import Datastream
from headgate.pipeline.delta import Delta
from headgate.pipeline.duration import Duration
from headgate.pipeline.envelope import Confluent, Wrapper
from headgate.pipeline.expect import Expectation
from headgate.pipeline.files import Files
from headgate.pipeline.finding import Finding, InvalidPipeline
from headgate.pipeline.gold import GoldQuery, GoldUnion
from headgate.pipeline.json_schema import pipeline_json_schema
from headgate.pipeline.kafka import Kafka
from headgate.pipeline.kafka_security import Security
from headgate.pipeline.load import check_pipeline, load_pipeline, load_stream_pipeline
from headgate.pipeline.merge import Merge
from headgate.pipeline.pipeline import Pipeline
from headgate.pipeline.registry import Registry
from headgate.pipeline.secret import Secret
from headgate.pipeline.size import Size

__all__ = [
    "AnyPipeline",
    "ChangePipeline",
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
    "InvalidPipeline",
    "Kafka",
    "Merge",
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
    "load_stream_pipeline",
    "pipeline_json_schema",
]
