"""Airflow as a target of workflows: a DAG, and runs through the API."""

from __future__ import annotations
