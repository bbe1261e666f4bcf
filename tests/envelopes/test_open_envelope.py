from __future__ import annotations

from pathlib import Path

import pytest

from headgate.config import Confluent, Wrapper
from headgate.envelopes.confluent import ConfluentEnvelope
from headgate.envelopes.open import open_envelope
from headgate.envelopes.wrapper import WrapperEnvelope
from headgate.errors import PipelineFileError


def test_confluent_is_opened() -> None:
    assert open_envelope(Confluent(route="record")) == ConfluentEnvelope("record")


def test_wrapper_is_opened_with_the_text_of_its_proto(tmp_path: Path) -> None:
    proto = tmp_path / "wrapper.proto"
    proto.write_text('syntax = "proto3"; message W { string r = 1; int32 id = 2; bytes p = 3; }')
    declared = Wrapper(message="W", route="r", schema_id="id", payload="p", proto=str(proto))
    assert open_envelope(declared) == WrapperEnvelope("W", "r", "id", "p", proto.read_text())


def test_wrapper_is_opened_with_the_declared_payload_messages() -> None:
    declared = Wrapper(message="W", route="r", schema_id="id", payload="p", payload_message="M")
    envelope = open_envelope(declared)
    assert isinstance(envelope, WrapperEnvelope)
    assert envelope.payload_messages.for_route("chess") == "M"


def test_wrapper_that_lacks_a_field_is_refused_at_once(tmp_path: Path) -> None:
    proto = tmp_path / "wrapper.proto"
    proto.write_text('syntax = "proto3"; message W { string r = 1; }')
    declared = Wrapper(message="W", route="r", schema_id="id", payload="p", proto=str(proto))
    with pytest.raises(PipelineFileError, match="no field id") as caught:
        open_envelope(declared)
    assert caught.value.hint == "its fields: r"
