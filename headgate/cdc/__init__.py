"""A database's changes: in order, merged, as history, as of any moment."""

from __future__ import annotations
