"""Envelopes from their declarations."""

from __future__ import annotations

from pathlib import Path

from headgate.config import Confluent, Datastream, Wrapper
from headgate.envelopes.confluent import ConfluentEnvelope
from headgate.envelopes.opened import Envelope
from headgate.envelopes.wrapper import WrapperEnvelope


def open_envelope(declared: Confluent | Wrapper | Datastream) -> Envelope:
    """Open the envelope of a stream of records."""
    assert not isinstance(declared, Datastream), "change files have no envelope per record"
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
