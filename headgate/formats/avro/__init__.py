"""Avro: a registry's schema text, payloads decoded to columns."""

from __future__ import annotations

from headgate.formats.avro.decoder import AvroDecoder

__all__ = ["AvroDecoder"]
