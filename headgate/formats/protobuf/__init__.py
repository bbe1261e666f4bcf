"""Protobuf: a registry's schema text, payloads decoded to columns."""

from __future__ import annotations

from headgate.formats.protobuf.decoder import NoSuchMessage, ProtobufDecoder

__all__ = ["NoSuchMessage", "ProtobufDecoder"]
