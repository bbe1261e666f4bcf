"""Object storage: how to reach the URLs of a pipeline."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Annotated, TypeVar
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

from headgate.config.location import Location, is_below, is_remote, reject_credentials
from headgate.config.model import ConfigModel
from headgate.config.secrets import Secret, settings_checked_by
from headgate.errors import InvalidPipeline, listed, shown

S3 = ("s3", "s3a")
AZURE = ("abfss", "abfs", "az")
GOOGLE = ("gs",)
SCHEMES = (*S3, *AZURE, *GOOGLE)


def scheme_of(url: str) -> str:
    return urlsplit(url).scheme.lower()


def _endpoint(url: str) -> str:
    if scheme_of(url) not in ("http", "https"):
        hint = "write it with its protocol: `https://storage.example.com:9000`"
        raise InvalidPipeline("bad-value", f"is not the URL of a server: {shown(url)}", hint)
    return reject_credentials(url).rstrip("/")


class Storage(ConfigModel):
    """How to reach the object storage of a pipeline's URLs.

    What is not given comes from the environment, as for other tools: variables such as
    `AWS_ACCESS_KEY_ID`, or the role of the machine.
    """

    endpoint: Annotated[str, AfterValidator(_endpoint)] | None = Field(
        default=None, examples=["https://storage.example.com"]
    )
    """URL of a server with the API of S3. Defaults to that of AWS."""

    region: str | None = Field(default=None, examples=["eu-central-1"])
    """Region of the bucket."""

    access_key: Secret | None = None
    """ID of the access key for S3."""

    secret_key: Secret | None = None
    """Secret of the access key for S3."""

    session_token: Secret | None = None
    """Token that belongs to a temporary access key for S3."""

    path_style: bool | None = Field(default=None, strict=True)
    """Whether the bucket is in the path of requests to S3 rather than in the host name. Defaults
    to true with an `endpoint`."""

    account_key: Secret | None = None
    """Key of the account for Azure."""

    sas_token: Secret | None = None
    """Shared access signature for Azure."""

    service_account: Secret | None = None
    """Key of the service account for Google Cloud Storage, as JSON."""

    options: Annotated[Mapping[str, str | Secret], settings_checked_by(lambda _: None)] = Field(
        default_factory=dict, examples=[{"timeout": "30s"}]
    )
    """Further options of the object store, such as `azure_tenant_id`. Settings of Spark are under
    `spark`: `spark.hadoop.fs.s3a.…`."""

    def for_tables(self, url: str) -> dict[str, str]:
        """Return the options with which delta-rs reaches a URL. The secrets are resolved."""
        kind = scheme_of(url)
        options: dict[str, str | Secret | None] = {}
        if kind in S3:
            options = {
                "aws_endpoint_url": self.endpoint,
                "aws_region": self._region,
                "aws_access_key_id": _in_header(self.access_key),
                "aws_secret_access_key": self.secret_key,
                "aws_session_token": _in_header(self.session_token),
                "aws_virtual_hosted_style_request": _text(not self._uses_paths),
            }
        elif kind in AZURE:
            options = {
                "azure_storage_account_key": self.account_key,
                "azure_storage_sas_key": self.sas_token,
                "azure_endpoint": self.endpoint,
            }
        elif kind in GOOGLE:
            options = {"google_service_account_key": self.service_account}
        if self.endpoint is not None and scheme_of(self.endpoint) == "http":
            options["allow_http"] = "true"
        given = {**options, **self.options}
        return {
            name: value.resolve() if isinstance(value, Secret) else value
            for name, value in given.items()
            if value is not None
        }

    def for_spark(self, url: str) -> dict[str, str | Secret]:
        """Return the settings with which Spark reaches a URL."""
        kind = scheme_of(url)
        settings: dict[str, str | Secret | None] = {}
        if kind in S3:
            settings = {
                "fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem",
                "fs.s3a.endpoint": self.endpoint,
                "fs.s3a.endpoint.region": self._region,
                "fs.s3a.path.style.access": _text(self._uses_paths),
                "fs.s3a.access.key": self.access_key,
                "fs.s3a.secret.key": self.secret_key,
                "fs.s3a.session.token": self.session_token,
            }
        elif kind in AZURE:
            host = urlsplit(url).hostname
            settings = {
                f"fs.azure.account.key.{host}": self.account_key,
                f"fs.azure.sas.fixed.token.{host}": self.sas_token,
            }
        return {f"spark.hadoop.{key}": each for key, each in settings.items() if each is not None}

    @property
    def _region(self) -> str | None:
        """The region; servers other than those of AWS take any, but requests must name one."""
        return self.region or ("us-east-1" if self.endpoint else None)

    @property
    def _uses_paths(self) -> bool:
        return self.endpoint is not None if self.path_style is None else self.path_style


def _in_header(secret: Secret | None) -> str | None:
    return None if secret is None else secret.resolve_for_header()


def _text(value: bool) -> str:
    return str(value).lower()


def _in_known_storage(place: str) -> str:
    if is_remote(place) and scheme_of(place) not in SCHEMES:
        schemes = listed(f"{scheme}://" for scheme in ("s3", "abfss", "gs"))
        hint = f"use a path of this machine, or a URL that starts with {schemes}"
        raise InvalidPipeline("bad-value", f"cannot be {shown(place)}", hint)
    return place


Folder = Annotated[Location, AfterValidator(_in_known_storage)]
"""The path of a folder on this machine, or its URL in an object storage."""


_declared: dict[str, Storage] = {}


def declare_storage(storage: Storage, *urls: str) -> None:
    """Let this process reach URLs, and all below them, with these settings."""
    for url in urls:
        _declared[url.rstrip("/")] = storage


TASK_STORAGE = "HEADGATE_STORAGE"
"""Environment variable of tasks: options by URL, which they cannot get from a pipeline file."""


def options_of(url: str) -> dict[str, str] | None:
    """Return the options with which a URL is reached; None for those of the environment."""
    if not is_remote(url):
        return None
    storage = _nearest(_declared, url)
    if storage is not None:
        return storage.for_tables(url)
    return _nearest(json.loads(os.environ.get(TASK_STORAGE, "{}")), url)


def task_environment() -> dict[str, str]:
    """Return the environment variables with which tasks reach what this process reaches."""
    options = {url: storage.for_tables(url) for url, storage in _declared.items()}
    return {TASK_STORAGE: json.dumps(options)} if options else {}


_Known = TypeVar("_Known")


def _nearest(known: Mapping[str, _Known], url: str) -> _Known | None:
    """Return the value of the longest URL that a URL is below of."""
    found = [one for one in known if is_below(url, one)]
    return known[max(found, key=len)] if found else None
