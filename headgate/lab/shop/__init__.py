"""A shop that never was: a database whose rows and tables keep changing, told in change files."""

from __future__ import annotations
