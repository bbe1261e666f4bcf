"""Pipelines to begin with; `headgate init` writes them."""

from __future__ import annotations

from headgate.examples.example import EXAMPLES, Example, find_example

__all__ = ["EXAMPLES", "Example", "find_example"]
