"""Avro: writer schemas from a registry, and their payloads decoded to columns."""

from __future__ import annotations

from headgate.formats.avro.decoder import AvroDecoder

__all__ = ["AvroDecoder"]
