"""The place of every change among all changes of its table, as one text that compares alike."""

from __future__ import annotations
