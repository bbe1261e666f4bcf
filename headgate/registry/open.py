"""Opening the registry that a pipeline declares."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from headgate.config import Duration, Registry, Secret
from headgate.registry.folder import FolderRegistry
from headgate.registry.http import HttpRegistry, HttpRegistrySettings
from headgate.registry.registry import SchemaCatalog


def open_registry(declared: Registry) -> SchemaCatalog:
    """Open a registry, resolving secrets on this machine: a plan only has references to them."""
    if declared.url is None:
        assert declared.folder is not None
        return FolderRegistry(declared.folder)
    return HttpRegistry(
        HttpRegistrySettings(
            declared.url, _client_settings(declared), declared.timeout.total_seconds()
        )
    )


@contextmanager
def opened_registry(declared: Registry, max_timeout: Duration) -> Iterator[SchemaCatalog]:
    """Open a registry with a timeout of at most `max_timeout`, and close it at the end."""
    timeout = min(declared.timeout, max_timeout)
    registry = open_registry(declared.model_copy(update={"timeout": timeout}))
    try:
        yield registry
    finally:
        registry.close()


def _client_settings(declared: Registry) -> dict[str, str]:
    settings = {}
    if declared.username and declared.password:
        user = declared.username
        name = user.resolve() if isinstance(user, Secret) else user
        settings["basic.auth.user.info"] = f"{name}:{declared.password.resolve()}"
    if declared.token:
        settings["bearer.auth.credentials.source"] = "STATIC_TOKEN"
        settings["bearer.auth.token"] = declared.token.resolve_for_header()
        # Only Confluent Cloud uses this, but the client requires it.
        settings["bearer.auth.logical.cluster"] = "-"
    for key, path in (
        ("ssl.ca.location", declared.ca),
        ("ssl.certificate.location", declared.certificate),
        ("ssl.key.location", declared.key),
    ):
        if path:
            settings[key] = path
    if declared.key_password:
        settings["ssl.key.password"] = declared.key_password.resolve()
    return settings
