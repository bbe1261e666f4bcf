"""What a run shows while it runs: a live view, a line an event, or a JSON object an event."""

from __future__ import annotations
