"""A stream that is made up, landed while its schemas change, with no server at all."""

from __future__ import annotations
