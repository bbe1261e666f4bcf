"""Pipelines as values: the models of the pipeline file, validated and frozen."""

from __future__ import annotations

from headgate.config.catalog import Catalog
from headgate.config.contract import Contract, Mode, Rules, TableRules, UnknownFields
from headgate.config.envelopes import Confluent, Datastream, Wrapper
from headgate.config.expect import Expectation
from headgate.config.gold import GoldQuery, GoldUnion
from headgate.config.grants import Grant, Granted, Principal
from headgate.config.kafka import Kafka, Security
from headgate.config.load import (
    check_pipeline,
    load_pipeline,
    pipeline_json_schema,
)
from headgate.config.maintain import Maintain
from headgate.config.pipeline import Merge, PipelineConfig
from headgate.config.predict import Predict, PredictTo, Train
from headgate.config.registry import Registry
from headgate.config.secrets import Secret
from headgate.config.sources import Delta, Files
from headgate.config.storage import Storage
from headgate.config.units import Duration, Size
from headgate.config.workflow import Airflow, Cluster, Databricks, Email, Notify, Task, Workflow
from headgate.errors import Finding, InvalidPipeline

__all__ = [
    "Airflow",
    "Catalog",
    "Cluster",
    "Confluent",
    "Contract",
    "Databricks",
    "Datastream",
    "Delta",
    "Duration",
    "Email",
    "Expectation",
    "Files",
    "Finding",
    "GoldQuery",
    "GoldUnion",
    "Grant",
    "Granted",
    "InvalidPipeline",
    "Kafka",
    "Maintain",
    "Merge",
    "Mode",
    "Notify",
    "PipelineConfig",
    "Predict",
    "PredictTo",
    "Principal",
    "Registry",
    "Rules",
    "Secret",
    "Security",
    "Size",
    "Storage",
    "TableRules",
    "Task",
    "Train",
    "UnknownFields",
    "Workflow",
    "Wrapper",
    "check_pipeline",
    "load_pipeline",
    "pipeline_json_schema",
]
