"""Protobuf: a registry's schema text, payloads decoded to columns."""

from __future__ import annotations

from headgate.formats.protobuf.decoder import ProtobufDecoder
from headgate.formats.protobuf.descriptors import AmbiguousMessage, NoSuchMessage

__all__ = ["AmbiguousMessage", "NoSuchMessage", "ProtobufDecoder"]
