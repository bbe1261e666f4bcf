"""Envelopes from their declarations."""

from __future__ import annotations

from pathlib import Path

from headgate.config import Confluent, Wrapper
from headgate.envelopes.confluent import ConfluentEnvelope
from headgate.envelopes.opened import Envelope
from headgate.envelopes.wrapper import WrapperEnvelope


def open_envelope(declared: Confluent | Wrapper) -> Envelope:
    if isinstance(declared, Confluent):
        return ConfluentEnvelope(declared.route)
    proto = Path(declared.proto).read_text("utf-8") if declared.proto else None
    wrapper = WrapperEnvelope(
        declared.message,
        declared.route,
        declared.schema_id,
        declared.payload,
        proto,
        declared.payload_messages,
    )
    # Checked on the driver, so that a wrong .proto fails the pipeline and not a batch.
    wrapper.check()
    return wrapper
