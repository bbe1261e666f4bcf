"""The order of all changes of a table, derived from their metadata."""

from __future__ import annotations
