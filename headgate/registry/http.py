"""A registry with Confluent's HTTP API, asked through confluent-kafka's own client."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, TypeVar

from headgate.errors import RegistryError, RegistryUnavailable
from headgate.registry.registry import (
    DEEPEST_REFERENCE,
    MOST_REFERENCES,
    Kind,
    RefusedSchema,
    SchemaKey,
    SchemaText,
    SubjectVersion,
    UnknownSchema,
)

T = TypeVar("T")
_SIDE_BY_SIDE = 8
_SCHEMA_NOT_FOUND = {40401, 40402, 40403}
_REFUSALS = {401: "registry-refused", 403: "registry-refused", 409: "registry-refused"}


@dataclass(frozen=True)
class HttpRegistrySettings:
    """Where the registry is and who we are there; `client` goes to confluent-kafka's client."""

    url: str
    client: dict[str, str] = field(default_factory=dict, repr=False)
    patience: float = 60.0
    """Seconds to wait for a registry that is down, slow or answers nonsense."""


class HttpRegistry:
    """Asks one registry; waits with growing pauses while it is out of order."""

    def __init__(
        self, settings: HttpRegistrySettings, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        from confluent_kafka.schema_registry import SchemaRegistryClient

        self._settings = settings
        self._sleep = sleep
        # One try a call: the waiting between tries is ours, bounded by `patience` in all.
        self._client: Any = SchemaRegistryClient(
            {"url": settings.url, "timeout": 10, "max.retries": 0, **settings.client}
        )

    def fetch(self, key: SchemaKey) -> SchemaText:
        ask = self._client.get_schema if isinstance(key, int) else self._client.get_schema_by_guid
        schema = self._patiently(lambda: self._usable(ask(key)), f"schema {key}")
        references: dict[str, str] = {}
        self._collect_references(schema, references, depth=0)
        return SchemaText(_kind(schema), schema.schema_str, tuple(references.items()))

    def register(self, subject: str, schema: SchemaText) -> int:
        from confluent_kafka.schema_registry import Schema

        registered = Schema(schema.text, schema_type=schema.kind)
        return int(
            self._patiently(lambda: self._client.register_schema(subject, registered), subject)
        )

    def close(self) -> None:
        self._client.close()

    def subjects(self) -> list[str]:
        return self._patiently(lambda: _words(self._client.get_subjects()), "subjects")

    def newest(self, subject: str) -> SubjectVersion:
        return self._version(subject, "latest")

    def all_newest(self) -> list[SubjectVersion]:
        def newest(subject: str) -> SubjectVersion | None:
            try:
                return self.newest(subject)
            except UnknownSchema:  # deleted meanwhile
                return None

        with ThreadPoolExecutor(_SIDE_BY_SIDE) as pool:
            found = list(pool.map(newest, sorted(self.subjects())))
        return [one for one in found if one is not None]

    def version(self, subject: str, number: int) -> SubjectVersion:
        return self._version(subject, number)

    def subjects_of(self, schema_id: int) -> list[str]:
        def ask() -> list[str]:
            return _words([one.subject for one in self._client.get_schema_versions(schema_id)])

        try:
            return list(dict.fromkeys(self._patiently(ask, f"schema {schema_id}")))
        except UnknownSchema:
            return []

    def _version(self, subject: str, number: int | Literal["latest"]) -> SubjectVersion:
        def ask() -> SubjectVersion:
            found = self._client.get_version(subject, number)
            self._usable(found.schema)
            if isinstance(found.version, int) and isinstance(found.schema_id, int):
                return SubjectVersion(subject, found.version, found.schema_id)
            self._client.clear_caches()
            raise ValueError("the response has no version")

        which = "" if number == "latest" else f" version {number}"
        return self._patiently(ask, f"subject {subject}{which}")

    def _collect_references(self, schema: Any, found: dict[str, str], depth: int) -> None:
        if depth > DEEPEST_REFERENCE:
            raise RefusedSchema(f"references go deeper than {DEEPEST_REFERENCE}")
        for reference in schema.references or ():
            name = str(reference.name)
            if name in found:
                continue
            if len(found) >= MOST_REFERENCES:
                raise RefusedSchema(f"more than {MOST_REFERENCES} references")
            found[name] = ""
            referred = self._patiently(
                partial(self._referred, reference),
                f"{reference.subject} version {reference.version}",
            )
            self._collect_references(referred, found, depth + 1)
            del found[name]
            found[name] = referred.schema_str

    def _referred(self, reference: Any) -> Any:
        return self._usable(self._client.get_version(reference.subject, reference.version).schema)

    def _usable(self, schema: Any) -> Any:
        """The client takes any JSON for a schema, and keeps it: look at it before we do."""
        if isinstance(schema.schema_str, str) and isinstance(schema.schema_type, str | None):
            return schema
        self._client.clear_caches()
        raise ValueError("the response has no schema")

    def _patiently(self, ask: Callable[[], T], what: str) -> T:
        from confluent_kafka.schema_registry.error import SchemaRegistryError

        deadline = time.monotonic() + self._settings.patience
        pause = 0.2
        while True:
            try:
                return ask()
            except SchemaRegistryError as error:
                if error.error_code in _SCHEMA_NOT_FOUND:
                    raise UnknownSchema("schema-unknown", f"{what} is not registered") from None
                if error.http_status_code in _REFUSALS:
                    raise RegistryError(
                        _REFUSALS[error.http_status_code],
                        f"the registry refused {what}: {error.error_message}",
                        hint="check the credentials for the registry and its access rules",
                        where=self._settings.url,
                    ) from None
                trouble = f"HTTP {error.http_status_code}: {error.error_message}"
            except Exception as error:
                # Whatever a broken answer does inside the client, it is the registry's trouble.
                trouble = f"{type(error).__name__}: {error}"
            if time.monotonic() + pause > deadline:
                raise RegistryUnavailable(
                    "registry-unavailable",
                    f"no usable response from the registry for {what} within "
                    f"{self._settings.patience:.0f} s ({trouble[:300]})",
                    hint="once the registry is up, run again: a pipeline resumes where it stopped",
                    where=self._settings.url,
                )
            self._sleep(pause * random.uniform(0.8, 1.2))
            pause = min(pause * 2, 10.0)


def _kind(schema: Any) -> Kind:
    kind: Kind = schema.schema_type or "AVRO"
    return kind


def _words(answer: list[Any]) -> list[str]:
    """Names, if that is what the answer has."""
    if isinstance(answer, list) and all(isinstance(one, str) for one in answer):
        return answer
    raise ValueError("the response is not a list of names")
