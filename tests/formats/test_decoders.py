from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import pyarrow as pa
import pytest

from headgate.errors import RegistryUnavailable
from headgate.formats.decoder import FIRST_MESSAGE, MessageChoice, Refusal
from headgate.formats.decoders import MAX_UNKNOWN, Decoders
from headgate.reasons import Reason
from headgate.registry.registry import (
    MAX_SCHEMA_SIZE,
    RefusedSchema,
    SchemaKey,
    SchemaText,
    UnknownSchema,
)

PROTO = SchemaText(
    "PROTOBUF", 'syntax = "proto3"; message A { int32 x = 1; } message B { int32 y = 1; }'
)
AVRO = SchemaText(
    "AVRO", '{"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}'
)
GUID = "11111111-2222-3333-4444-555555555555"


@dataclass
class CountingRegistry:
    """Knows what it is given, and how often it was asked."""

    known: dict[SchemaKey, SchemaText | Exception]
    asked: Counter[SchemaKey] = field(default_factory=Counter)

    def fetch(self, key: SchemaKey) -> SchemaText:
        self.asked[key] += 1
        found = self.known.get(key, UnknownSchema("schema-unknown", f"no schema {key}"))
        if isinstance(found, Exception):
            raise found
        return found

    def register(self, subject: str, schema: SchemaText) -> int:
        raise NotImplementedError

    def close(self) -> None:
        """Nothing is held open."""


@dataclass
class Clock:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


def test_decoder_is_made_for_the_kind_of_schema() -> None:
    decoders = Decoders(CountingRegistry({1: PROTO, 2: AVRO, GUID: AVRO}))
    for key, payload, row in (
        (1, b"\x08\x05", {"x": 5}),
        (2, b"\x0a", {"a": 5}),
        (GUID, b"\x0a", {"a": 5}),
    ):
        decoder = decoders.decoder(key, FIRST_MESSAGE)
        assert not isinstance(decoder, Refusal)
        assert decoder.decode(pa.array([payload], pa.binary())).columns.to_pylist() == [row]


def test_each_id_is_asked_for_once() -> None:
    registry = CountingRegistry({1: PROTO, 2: AVRO})
    decoders = Decoders(registry)
    decoders.fetch([1, 2, 1, 3])
    decoders.fetch([3, 2, 1])
    for _ in range(3):
        assert decoders.decoder(1) is decoders.decoder(1)
        decoders.decoder(1, (1,))
        decoders.text(2)
        decoders.decoder(3)
    assert registry.asked == {1: 1, 2: 1, 3: 1}


def test_many_ids_are_fetched_at_once() -> None:
    registry = CountingRegistry(dict.fromkeys(range(40), PROTO))
    decoders = Decoders(registry)
    decoders.fetch(range(50))
    assert [isinstance(decoders.text(key), Refusal) for key in range(50)] == [False] * 40 + [
        True
    ] * 10
    assert registry.asked == dict.fromkeys(range(50), 1)


def test_unknown_id_is_asked_for_again_only_after_a_pause() -> None:
    registry, clock = CountingRegistry({}), Clock()
    decoders = Decoders(registry, clock)
    unknown = decoders.decoder(9, FIRST_MESSAGE)
    assert isinstance(unknown, Refusal)
    assert unknown.reason == Reason.SCHEMA_UNKNOWN
    registry.known[9] = PROTO
    clock.now = 30.0
    assert isinstance(decoders.decoder(9, FIRST_MESSAGE), Refusal)
    assert registry.asked[9] == 1
    clock.now = 30.1
    assert not isinstance(decoders.decoder(9, FIRST_MESSAGE), Refusal)
    clock.now = 1e6
    decoders.decoder(9)
    assert registry.asked[9] == 2


def test_id_that_stays_unknown_is_asked_for_once_a_pause() -> None:
    registry, clock = CountingRegistry({}), Clock()
    decoders = Decoders(registry, clock)
    for clock.now in (0.0, 10.0, 31.0, 40.0, 61.5):
        decoders.fetch([9])
    assert registry.asked[9] == 3


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (SchemaText("PROTOBUF", "nonsense"), Reason.SCHEMA_REFUSED),
        (SchemaText("AVRO", "nonsense"), Reason.SCHEMA_REFUSED),
        (SchemaText("AVRO", '"nothing"'), Reason.SCHEMA_REFUSED),
        (SchemaText("JSON", "{}"), Reason.SCHEMA_KIND_UNSUPPORTED),
        (SchemaText("PROTOBUF", 'syntax = "proto3";'), Reason.MESSAGE_UNKNOWN),
        (PROTO, Reason.MESSAGE_AMBIGUOUS),
        (SchemaText("PROTOBUF", " " * (MAX_SCHEMA_SIZE + 1)), Reason.SCHEMA_REFUSED),
        (SchemaText("AVRO", "", (("a", " " * (MAX_SCHEMA_SIZE + 1)),)), Reason.SCHEMA_REFUSED),
        (RefusedSchema("references go deeper than 16"), Reason.SCHEMA_REFUSED),
    ],
    ids=lambda value: str(value)[:40],
)
def test_schema_that_cannot_be_used_is_a_refusal(
    text: SchemaText | Exception, reason: Reason
) -> None:
    registry = CountingRegistry({1: text})
    decoders = Decoders(registry, clock := Clock())
    refused = decoders.decoder(1)
    assert isinstance(refused, Refusal)
    assert refused.reason == reason
    assert refused.detail
    clock.now = 1e6
    assert decoders.decoder(1) == refused
    assert registry.asked[1] == 1


@pytest.mark.parametrize(
    ("message", "reason", "detail"),
    [
        ((2,), Reason.MESSAGE_INDEX_WRONG, "the schema has no message at index [2]"),
        ("C", Reason.MESSAGE_UNKNOWN, "the schema has no message C; its messages: A, B"),
        (None, Reason.MESSAGE_AMBIGUOUS, "the payload can be any of the messages A, B"),
    ],
)
def test_message_that_the_schema_lacks_is_a_refusal_of_that_message_only(
    message: MessageChoice, reason: Reason, detail: str
) -> None:
    decoders = Decoders(CountingRegistry({1: PROTO}))
    assert decoders.decoder(1, message) == Refusal(reason, detail)
    for other in ((1,), "B"):
        decoder = decoders.decoder(1, other)
        assert not isinstance(decoder, Refusal)
        assert decoder.record_name == "B"


def test_schema_without_messages_has_none_at_any_index() -> None:
    decoders = Decoders(CountingRegistry({1: SchemaText("PROTOBUF", 'syntax = "proto3";')}))
    refused = decoders.decoder(1, FIRST_MESSAGE)
    assert isinstance(refused, Refusal)
    assert refused.reason == Reason.MESSAGE_INDEX_WRONG


def test_registry_that_is_down_is_no_refusal_and_known_ids_go_on() -> None:
    registry = CountingRegistry({1: PROTO})
    decoders = Decoders(registry)
    decoders.fetch([1])
    registry.known[2] = RegistryUnavailable("registry-unavailable", "down")
    with pytest.raises(RegistryUnavailable):
        decoders.fetch([1, 2])
    assert not isinstance(decoders.decoder(1, FIRST_MESSAGE), Refusal)
    registry.known[2] = AVRO
    assert not isinstance(decoders.decoder(2), Refusal)


def test_batch_looks_up_a_limited_number_of_unknown_ids() -> None:
    registry = CountingRegistry({1: AVRO, 5000: AVRO})
    decoders = Decoders(registry)
    decoders.begin(batch=0)
    decoders.fetch([5000, *range(1, 1000)])
    assert registry.asked.total() == 2 + MAX_UNKNOWN
    assert not isinstance(decoders.decoder(1), Refusal)
    assert not isinstance(decoders.decoder(5000), Refusal)
    looked_up, skipped = decoders.decoder(2), decoders.decoder(999)
    assert isinstance(looked_up, Refusal)
    assert isinstance(skipped, Refusal)
    assert looked_up.reason == skipped.reason == Reason.SCHEMA_UNKNOWN
    assert "replay" in skipped.detail
    assert decoders.skipped(999) == skipped
    assert decoders.skipped(2) is None
    assert decoders.skipped(1) is None
    assert registry.asked.total() == 2 + MAX_UNKNOWN


def test_refused_ids_count_as_unknown() -> None:
    refused: dict[SchemaKey, SchemaText | Exception] = dict.fromkeys(
        range(1000), RefusedSchema("forbidden")
    )
    registry = CountingRegistry(refused)
    decoders = Decoders(registry)
    decoders.begin(batch=0)
    decoders.fetch(range(1000))
    assert registry.asked.total() == MAX_UNKNOWN


def test_next_batch_finds_an_id_that_was_registered_meanwhile() -> None:
    registry = CountingRegistry({})
    decoders = Decoders(registry, Clock())
    decoders.begin(batch=0)
    assert isinstance(decoders.decoder(9), Refusal)
    registry.known[9] = AVRO
    decoders.begin(batch=0)
    assert isinstance(decoders.decoder(9), Refusal)
    decoders.begin(batch=1)
    assert not isinstance(decoders.decoder(9), Refusal)
    assert registry.asked[9] == 2


def test_schemas_that_were_not_used_for_long_are_dropped_between_batches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("headgate.formats.decoders._MAX_SCHEMAS", 3)
    registry = CountingRegistry(dict.fromkeys(range(10), AVRO))
    decoders = Decoders(registry)
    decoders.begin(batch=0)
    for key in (*range(10), 0):
        assert not isinstance(decoders.decoder(key), Refusal)
        decoders.text(key)
    assert registry.asked == dict.fromkeys(range(10), 1)
    decoders.begin(batch=1)
    for key in (0, 8, 9):
        decoders.decoder(key)
        decoders.text(key)
    assert registry.asked == dict.fromkeys(range(10), 1)
    decoders.decoder(1)
    assert registry.asked[1] == 2


def test_texts_that_are_kept_have_a_total_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headgate.formats.decoders._MAX_TEXT", 3 * len(AVRO.text))
    registry = CountingRegistry(dict.fromkeys(range(10), AVRO))
    decoders = Decoders(registry)
    decoders.begin(batch=0)
    decoders.fetch(range(10))
    decoders.begin(batch=1)
    decoders.fetch(range(7, 10))
    assert registry.asked.total() == 10
    decoders.fetch([6])
    assert registry.asked[6] == 2
