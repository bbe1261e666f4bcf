"""Sends made-up records from the command line, and cleans up after itself."""

from __future__ import annotations
