"""Decoders of registered schemas, cached by schema id and message."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from time import monotonic

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

_RETRY_AFTER = 30.0
_MAX_WORKERS = 8


class Decoders:
    """Decoders by schema id and message, compiled on first use."""

    def __init__(self, registry: SchemaRegistry, clock: Callable[[], float] = monotonic) -> None:
        self._registry = registry
        self._clock = clock
        self._texts: dict[SchemaKey, SchemaText | Refusal] = {}
        self._decoders: dict[tuple[SchemaKey, MessageChoice], Decoder | Refusal] = {}
        self._missing_since: dict[SchemaKey, float] = {}

    def fetch(self, keys: Iterable[SchemaKey]) -> None:
        """Fetch missing schemas from the registry in parallel."""
        missing = sorted({key for key in keys if self._must_fetch(key)}, key=str)
        if len(missing) == 1:
            self._texts[missing[0]] = self._fetch_one(missing[0])
        elif missing:
            with ThreadPoolExecutor(_MAX_WORKERS) as pool:
                self._texts.update(zip(missing, pool.map(self._fetch_one, missing), strict=True))

    def text(self, key: SchemaKey) -> SchemaText | Refusal:
        self.fetch([key])
        return self._texts[key]

    def decoder(self, key: SchemaKey, message: MessageChoice = ROOT_MESSAGE) -> Decoder | Refusal:
        decoder = self._decoders.get((key, message))
        if decoder is None:
            text = self.text(key)
            if isinstance(text, Refusal):
                return text
            decoder = self._decoders[key, message] = _compile(text, message)
        return decoder

    def _must_fetch(self, key: SchemaKey) -> bool:
        if key not in self._texts:
            return True
        since = self._missing_since.get(key)
        return since is not None and self._clock() - since > _RETRY_AFTER

    def _fetch_one(self, key: SchemaKey) -> SchemaText | Refusal:
        self._missing_since.pop(key, None)
        try:
            text = self._registry.fetch(key)
        except UnknownSchema as error:
            self._missing_since[key] = self._clock()
            return Refusal(Reason.SCHEMA_UNKNOWN, error.message)
        except RefusedSchema as error:
            return Refusal(Reason.SCHEMA_REFUSED, str(error))
        if len(text.text) + sum(len(one) for _, one in text.references) > MAX_SCHEMA_SIZE:
            return Refusal(Reason.SCHEMA_REFUSED, f"schema {key} is larger than {MAX_SCHEMA_SIZE}")
        return text


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
