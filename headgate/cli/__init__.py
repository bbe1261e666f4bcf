"""The command line: views of what the other layers give as values."""

from __future__ import annotations
