"""One module per command: its arguments, its help, and how its result is printed."""

from __future__ import annotations
