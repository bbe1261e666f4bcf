"""Databricks as a target of workflows: a job, as an Asset Bundle or installed by the API."""

from __future__ import annotations
