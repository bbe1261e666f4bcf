"""Decoders of registered schemas, cached by schema id and message."""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from time import monotonic
from typing import Generic, TypeVar

from headgate.formats.avro import AvroDecoder
from headgate.formats.decoder import ROOT_MESSAGE, Decoder, MessageChoice, Refusal
from headgate.formats.protobuf import AmbiguousMessage, NoSuchMessage, ProtobufDecoder
from headgate.reasons import Reason
from headgate.registry.registry import (
    MAX_SCHEMA_SIZE,
    RefusedSchema,
    SchemaKey,
    SchemaRegistry,
    SchemaText,
    UnknownSchema,
)

MAX_UNKNOWN = 100
"""Unknown ids that are looked up per batch; each costs a call of the registry."""
MAX_UNKNOWN_IN_REPLAY = 10_000
"""The same for a replay, which has to try each record."""
_RETRY_AFTER = 30.0
_MAX_WORKERS = 8
_MAX_TOGETHER = 64
"""Ids to look up before the number of unknown ones is checked."""
_MAX_SCHEMAS = 5_000
_MAX_TEXT = 256 << 20
"""Schemas, and characters of them, that are kept from one batch to the next."""

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Decoders:
    """Decoders by schema id and message, compiled on first use.

    What a batch uses is kept until the next one begins, so that no record of a batch is judged
    differently from another.
    """

    def __init__(self, registry: SchemaRegistry, clock: Callable[[], float] = monotonic) -> None:
        self._registry = registry
        self._clock = clock
        self._texts: _LastUsed[SchemaKey, SchemaText | Refusal] = _LastUsed()
        self._decoders: _LastUsed[tuple[SchemaKey, MessageChoice], Decoder | Refusal] = _LastUsed()
        self._unknown: dict[SchemaKey, tuple[float, Refusal]] = {}
        """Ids that the registry does not have, and when it said so."""
        self._failed = 0
        """Lookups of this batch that gave no schema."""
        self._batch: object = None
        self._max_unknown = sys.maxsize

    def begin(self, batch: object, max_unknown: int = MAX_UNKNOWN) -> None:
        """Begin a batch, or another task of it.

        A batch looks up ids again that were unknown to the last one. Schemas that were not used
        for long are dropped.
        """
        self._max_unknown = max_unknown
        if batch == self._batch:
            return
        self._batch, self._failed = batch, 0
        self._unknown.clear()
        self._decoders.shrink(_MAX_SCHEMAS)
        self._texts.shrink(_MAX_SCHEMAS, _size, _MAX_TEXT)

    def fetch(self, keys: Iterable[SchemaKey]) -> None:
        """Fetch missing schemas from the registry in parallel, in the order of their keys.

        Once a batch has too many unknown ids, no further ones are looked up.
        """
        missing = list(dict.fromkeys(key for key in keys if self._must_fetch(key)))
        if len(missing) == 1 and self._may_look_up:
            self._look_up(missing)
        elif missing and self._may_look_up:
            with ThreadPoolExecutor(_MAX_WORKERS) as pool:
                while missing and self._may_look_up:
                    number = min(_MAX_TOGETHER, self._max_unknown - self._failed)
                    self._look_up(missing[:number], pool)
                    missing = missing[number:]

    def text(self, key: SchemaKey) -> SchemaText | Refusal:
        self.fetch([key])
        if key in self._unknown:
            return self._unknown[key][1]
        return self._texts.get(key) or self._skipped

    def skipped(self, key: SchemaKey) -> Refusal | None:
        """Return why an id is not looked up, if the batch has too many unknown ones."""
        if self._may_look_up or key in self._texts or key in self._unknown:
            return None
        return self._skipped

    @property
    def _skipped(self) -> Refusal:
        # The same for all ids: there may be as many of them as records.
        detail = f"not looked up after {self._max_unknown} unknown ids in a batch; replay it"
        return Refusal(Reason.SCHEMA_UNKNOWN, detail)

    def decoder(self, key: SchemaKey, message: MessageChoice = ROOT_MESSAGE) -> Decoder | Refusal:
        decoder = self._decoders.get((key, message))
        if decoder is None:
            text = self.text(key)
            if isinstance(text, Refusal):
                return text
            decoder = _compile(text, message)
            self._decoders.put((key, message), decoder)
        return decoder

    def _must_fetch(self, key: SchemaKey) -> bool:
        if key in self._unknown:
            return self._clock() - self._unknown[key][0] > _RETRY_AFTER
        return key not in self._texts

    @property
    def _may_look_up(self) -> bool:
        return self._failed < self._max_unknown

    def _look_up(self, keys: Sequence[SchemaKey], pool: ThreadPoolExecutor | None = None) -> None:
        found = pool.map(self._fetch_one, keys) if pool else map(self._fetch_one, keys)
        for key, text in zip(keys, found, strict=True):
            self._failed += isinstance(text, Refusal)
            if isinstance(text, Refusal) and text.reason is Reason.SCHEMA_UNKNOWN:
                self._unknown[key] = self._clock(), text
            else:
                self._unknown.pop(key, None)
                self._texts.put(key, text)

    def _fetch_one(self, key: SchemaKey) -> SchemaText | Refusal:
        try:
            text = self._registry.fetch(key)
        except UnknownSchema as error:
            return Refusal(Reason.SCHEMA_UNKNOWN, error.message)
        except RefusedSchema as error:
            return Refusal(Reason.SCHEMA_REFUSED, str(error))
        if len(text.text) + sum(len(one) for _, one in text.references) > MAX_SCHEMA_SIZE:
            return Refusal(Reason.SCHEMA_REFUSED, f"schema {key} is larger than {MAX_SCHEMA_SIZE}")
        return text


class _LastUsed(Generic[K, V]):
    """Values by key, of which the least recently used are dropped on request."""

    def __init__(self) -> None:
        self._values: dict[K, V] = {}

    def __contains__(self, key: K) -> bool:
        return key in self._values

    def get(self, key: K) -> V | None:
        value = self._values.pop(key, None)
        if value is not None:
            self._values[key] = value
        return value

    def put(self, key: K, value: V) -> None:
        self._values.pop(key, None)
        self._values[key] = value

    def shrink(self, most: int, size_of: Callable[[V], int] = lambda _: 0, total: int = 0) -> None:
        """Drop values until at most this many, of at most this total size, are left."""
        size = sum(map(size_of, self._values.values()))
        while len(self._values) > most or size > total:
            size -= size_of(self._values.pop(next(iter(self._values))))


def _size(text: SchemaText | Refusal) -> int:
    if isinstance(text, Refusal):
        return len(text.detail)
    return len(text.text) + sum(len(one) for _, one in text.references)


def _compile(text: SchemaText, message: MessageChoice) -> Decoder | Refusal:
    try:
        if text.schema_type == "PROTOBUF":
            return ProtobufDecoder.compile(text, message)
        if text.schema_type == "AVRO":
            return AvroDecoder.parse(text)
    except AmbiguousMessage as error:
        return Refusal(Reason.MESSAGE_AMBIGUOUS, str(error))
    except NoSuchMessage as error:
        by_index = isinstance(message, tuple)
        reason = Reason.MESSAGE_INDEX_WRONG if by_index else Reason.MESSAGE_UNKNOWN
        return Refusal(reason, str(error))
    except RefusedSchema as error:
        return Refusal(Reason.SCHEMA_REFUSED, str(error))
    return Refusal(Reason.SCHEMA_KIND_UNSUPPORTED, f"{text.schema_type} schemas are not decoded")
