"""The command line: commands that print what the layers below return as values."""

from __future__ import annotations
