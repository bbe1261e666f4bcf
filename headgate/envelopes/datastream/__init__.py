"""Datastream's change files, opened."""

from __future__ import annotations
