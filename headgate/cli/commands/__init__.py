"""One file a command. Nothing heavy is imported before a command runs: help must be quick."""

from __future__ import annotations
