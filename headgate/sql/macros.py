"""Functions that DuckDB does not have. Imports nothing: workers of the server start with it."""

from __future__ import annotations

WINDOW_START = "_window_start"
"""The function of DuckDB that returns the start of a window: of a time, and a length in µs."""

WINDOW_START_MACRO = f"""
CREATE MACRO {WINDOW_START}(t, length) AS
    make_timestamptz(epoch_us(t) - ((epoch_us(t) % length) + length) % length)
"""
