"""Change data capture: ordered change logs, merged tables, history, and tables as of any time."""

from __future__ import annotations
