"""Avro: a registry's schema text, payloads decoded to columns."""

from __future__ import annotations

from headgate.schema.avro.decoder import AvroDecoder

__all__ = ["AvroDecoder"]
