"""A simulated shop database whose rows and tables keep changing, and its change files."""

from __future__ import annotations
