"""The schema registry: a service, or a folder of schemas."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, ValidationInfo, field_validator

from headgate.config.location import LocalFile, LocalFolder, is_remote, reject_credentials
from headgate.config.model import ConfigModel
from headgate.config.secrets import Secret, Username
from headgate.config.units import Duration
from headgate.errors import InvalidPipeline, shown

_HTTP = re.compile(r"https?://[^\s/]+\S*", re.IGNORECASE)


def _check_url(url: str) -> str:
    # A user name without a password is rejected too: some services put a token there.
    reject_credentials(re.sub(r"//([^/@:]+)@", r"//\1:@", url))
    if not _HTTP.fullmatch(url):
        raise InvalidPipeline(
            "bad-value",
            f"cannot be {shown(url)}",
            "use a URL that starts with `http://` or `https://`, or a `folder`",
        )
    return url


class Registry(ConfigModel):
    """A schema registry: the URL of one with Confluent's API, or a folder."""

    url: Annotated[str, AfterValidator(_check_url)] | None = None
    """URL of a registry with Confluent's API, such as `http://localhost:8081/apis/ccompat/v7`."""

    folder: LocalFolder | None = None
    """Folder with one file per schema, instead of a registry."""

    username: Username | None = None
    """User name, or a reference such as `env:REGISTRY_USER`."""

    password: Secret | None = None
    """Reference to the password, such as `env:NAME` or `file:/path`."""

    token: Secret | None = None
    """Reference to a bearer token, instead of user name and password."""

    ca: LocalFile | None = None
    """CA certificates for verifying the registry (PEM)."""

    certificate: LocalFile | None = None
    """Client certificate for mutual TLS (PEM)."""

    key: LocalFile | None = None
    """Private key of the client certificate (PEM)."""

    key_password: Secret | None = None
    """Reference to the password of the private key."""

    timeout: Duration = Duration(seconds=60)
    """How long to wait for a schema while the registry is unavailable."""

    @property
    def secrets(self) -> list[Secret]:
        given = (self.username, self.password, self.token, self.key_password)
        return [one for one in given if isinstance(one, Secret)]

    @property
    def paths(self) -> dict[str, str]:
        """The folder of schemas, or the files with which to reach the registry, by key."""
        keys = ("folder", "ca", "certificate", "key")
        return {key: path for key in keys if (path := getattr(self, key)) is not None}

    @field_validator("folder", mode="after")
    @classmethod
    def _url_or_folder(cls, folder: str | None, info: ValidationInfo) -> str | None:
        if "url" in info.data and (info.data["url"] is None) == (folder is None):
            raise InvalidPipeline("choose-one", "needs exactly one of `url`, `folder`")
        return folder

    @field_validator("username", "token", "ca", "certificate", mode="after")
    @classmethod
    def _only_with_url(cls, value: object, info: ValidationInfo) -> object:
        if value is not None and info.data.get("folder") is not None:
            raise InvalidPipeline("bad-value", "has no effect with a `folder`")
        return value

    @field_validator("password", "key", mode="after")
    @classmethod
    def _in_pairs(cls, value: object, info: ValidationInfo) -> object:
        other = {"password": "username", "key": "certificate"}[str(info.field_name)]
        if other in info.data and (value is None) != (info.data[other] is None):
            raise InvalidPipeline("missing-key", f"must be given together with `{other}`")
        return value

    @field_validator("token", mode="after")
    @classmethod
    def _token_or_password(cls, token: Secret | None, info: ValidationInfo) -> Secret | None:
        if token is not None and info.data.get("username") is not None:
            raise InvalidPipeline("choose-one", "needs exactly one of `token`, `username`")
        return token


def _expand_short_form(value: object) -> object:
    """Expand `registry: ./schemas` to `registry: {folder: ./schemas}`, or to a `url`."""
    if not isinstance(value, str):
        return value
    return {"url": value} if is_remote(value) else {"folder": value}


RegistryField = Annotated[
    Registry, BeforeValidator(_expand_short_form, json_schema_input_type=str | Registry)
]
