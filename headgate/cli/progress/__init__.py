"""Progress of a run: a live view, one line per event, or one JSON object per event."""

from __future__ import annotations
