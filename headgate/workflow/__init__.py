"""Workflows: a pipeline's tasks, run here or installed in a scheduler."""

from __future__ import annotations
