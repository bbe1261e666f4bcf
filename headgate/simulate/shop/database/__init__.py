"""The shop on a real database: statements run there, and its log tells what they changed."""

from __future__ import annotations
