"""Registries with Confluent's HTTP API, through the client of confluent-kafka."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, TypeVar

from headgate.errors import RegistryError, RegistryUnavailable
from headgate.registry.deadline import Deadline
from headgate.registry.registry import (
    MAX_REFERENCE_DEPTH,
    MAX_REFERENCES,
    RefusedSchema,
    SchemaKey,
    SchemaText,
    SchemaType,
    SubjectVersion,
    UnknownSchema,
)

T = TypeVar("T")
_MAX_WORKERS = 8
_SCHEMA_NOT_FOUND = {40401, 40402, 40403}
_REFUSED = {401, 403, 409}


@dataclass(frozen=True)
class HttpRegistrySettings:
    """The URL of the registry, and settings such as credentials for the client."""

    url: str
    client: dict[str, str] = field(default_factory=dict, repr=False)
    timeout: float = 60.0
    """Seconds for a request, with its retries while the registry is down, slow or responds with
    garbage."""


class HttpRegistry:
    """A registry client that retries with backoff while the registry is unavailable."""

    def __init__(
        self, settings: HttpRegistrySettings, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        from confluent_kafka.schema_registry import SchemaRegistryClient

        self._settings = settings
        self._sleep = sleep
        # No retries in the client: ours are bounded by the total `timeout`.
        self._client: Any = SchemaRegistryClient(
            {
                "url": settings.url,
                "timeout": min(10.0, settings.timeout),
                "max.retries": 0,
                **settings.client,
            }
        )
        self._deadline = Deadline()
        self._deadline.apply_to(self._client._rest_client.session)

    def fetch(self, key: SchemaKey) -> SchemaText:
        by_id = isinstance(key, int)
        request = self._client.get_schema if by_id else self._client.get_schema_by_guid
        schema = self._retry(
            lambda: self._validated(request(key)), f"schema {key}", one_of_many=True
        )
        references: dict[str, str] = {}
        self._collect_references(schema, references, depth=0)
        return SchemaText(_schema_type(schema), schema.schema_str, tuple(references.items()))

    def register(self, subject: str, schema: SchemaText) -> int:
        from confluent_kafka.schema_registry import Schema

        registered = Schema(schema.text, schema_type=schema.schema_type)
        return int(self._retry(lambda: self._client.register_schema(subject, registered), subject))

    def close(self) -> None:
        self._client.close()

    def subjects(self) -> list[str]:
        return self._retry(lambda: _strings(self._client.get_subjects()), "subjects")

    def latest(self, subject: str) -> SubjectVersion:
        return self._version(subject, "latest")

    def latest_versions(self) -> list[SubjectVersion]:
        def latest(subject: str) -> SubjectVersion | None:
            try:
                return self.latest(subject)
            except UnknownSchema:  # Deleted in the meantime.
                return None

        with ThreadPoolExecutor(_MAX_WORKERS) as pool:
            versions = list(pool.map(latest, sorted(self.subjects())))
        return [version for version in versions if version is not None]

    def version(self, subject: str, number: int) -> SubjectVersion:
        return self._version(subject, number)

    def delete(self, subject: str) -> None:
        for permanent in (False, True):
            # The second request deletes what the first has only hidden.
            with suppress(UnknownSchema):
                self._retry(
                    partial(self._client.delete_subject, subject, permanent),
                    f"subject {subject}",
                    one_of_many=True,
                )

    def subjects_of(self, schema_id: int) -> list[str]:
        def request() -> list[str]:
            versions = self._client.get_schema_versions(schema_id)
            return _strings([version.subject for version in versions])

        try:
            return list(dict.fromkeys(self._retry(request, f"schema {schema_id}")))
        except UnknownSchema:
            return []

    def _version(self, subject: str, number: int | Literal["latest"]) -> SubjectVersion:
        def request() -> SubjectVersion:
            response = self._client.get_version(subject, number)
            self._validated(response.schema)
            if isinstance(response.version, int) and isinstance(response.schema_id, int):
                return SubjectVersion(subject, response.version, response.schema_id)
            self._client.clear_caches()
            raise ValueError("the response has no version")

        version = "" if number == "latest" else f" version {number}"
        return self._retry(request, f"subject {subject}{version}")

    def _collect_references(self, schema: Any, references: dict[str, str], depth: int) -> None:
        if depth > MAX_REFERENCE_DEPTH:
            raise RefusedSchema(f"references go deeper than {MAX_REFERENCE_DEPTH}")
        for reference in schema.references or ():
            name = str(reference.name)
            if name in references:
                continue
            if len(references) >= MAX_REFERENCES:
                raise RefusedSchema(f"more than {MAX_REFERENCES} references")
            references[name] = ""  # Breaks cycles.
            referenced = self._retry(
                partial(self._referenced, reference),
                f"{reference.subject} version {reference.version}",
            )
            self._collect_references(referenced, references, depth + 1)
            del references[name]  # To insert it again after its own references.
            references[name] = referenced.schema_str

    def _referenced(self, reference: Any) -> Any:
        return self._validated(
            self._client.get_version(reference.subject, reference.version).schema
        )

    def _validated(self, schema: Any) -> Any:
        """Check a schema: the client accepts and caches any JSON as one."""
        if isinstance(schema.schema_str, str) and isinstance(schema.schema_type, str | None):
            return schema
        self._client.clear_caches()
        raise ValueError("the response has no schema")

    def _answers(self) -> bool:
        """Whether the registry answers a request that does not depend on a schema."""
        try:
            _strings(self._client.get_subjects())
        except Exception:  # an invalid response can raise anything inside the client
            return False
        return True

    def _retry(self, request: Callable[[], T], what: str, one_of_many: bool = False) -> T:
        """Repeat a request until it succeeds, is refused, or the timeout is over.

        The timeout bounds all of it, whatever the registry sends in the meantime.

        With `one_of_many`, a refusal and a 404 of any kind concern only what was requested, if the
        registry answers other requests: one record must not stop a stream.
        """
        deadline = time.monotonic() + self._settings.timeout
        with self._deadline.until(deadline):
            return self._retry_until(deadline, request, what, one_of_many)

    def _retry_until(
        self, deadline: float, request: Callable[[], T], what: str, one_of_many: bool
    ) -> T:
        from confluent_kafka.schema_registry.error import SchemaRegistryError

        delay = 0.2
        while True:
            try:
                return request()
            except SchemaRegistryError as error:
                if error.error_code in _SCHEMA_NOT_FOUND:
                    raise UnknownSchema("schema-unknown", f"{what} is not registered") from None
                if one_of_many and error.http_status_code == 404 and self._answers():
                    # Some registries give no code, for instance those without GUIDs.
                    raise UnknownSchema("schema-unknown", f"{what} is not registered") from None
                if one_of_many and error.http_status_code in _REFUSED and self._answers():
                    raise RefusedSchema(
                        f"the registry refused it: {error.error_message[:300]}"
                    ) from None
                if error.http_status_code in _REFUSED:
                    raise RegistryError(
                        "registry-refused",
                        f"the registry refused {what}: {error.error_message}",
                        hint="check the credentials and the registry's compatibility rules",
                        where=self._settings.url,
                    ) from None
                problem = f"HTTP {error.http_status_code}: {error.error_message}"
            except Exception as error:
                # An invalid response can raise anything inside the client.
                problem = f"{type(error).__name__}: {error}"
            if time.monotonic() + delay > deadline:
                raise RegistryUnavailable(
                    "registry-unavailable",
                    f"the registry gave no valid response for {what} within "
                    f"{self._settings.timeout:.0f} s ({problem[:300]})",
                    hint="fix the registry and run again: the pipeline continues where it stopped",
                    where=self._settings.url,
                )
            self._sleep(delay * random.uniform(0.8, 1.2))
            delay = min(delay * 2, 10.0)


def _schema_type(schema: Any) -> SchemaType:
    schema_type: SchemaType = schema.schema_type or "AVRO"
    return schema_type


def _strings(response: list[Any]) -> list[str]:
    """Check that a response is a list of strings."""
    if isinstance(response, list) and all(isinstance(item, str) for item in response):
        return response
    raise ValueError("the response is not a list of names")
