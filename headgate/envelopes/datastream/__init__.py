"""The change files of Google Cloud Datastream."""

from __future__ import annotations
