"""Where schemas are asked for: a registry, or a folder of them."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, ValidationInfo, field_validator

from headgate.config.location import LocalFile, LocalPlace, is_remote, refuse_credentials
from headgate.config.model import Declared
from headgate.config.secrets import Secret, Username
from headgate.config.units import Duration
from headgate.errors import InvalidPipeline, shown

_HTTP = re.compile(r"https?://[^\s/]+\S*", re.IGNORECASE)


def _check_url(url: str) -> str:
    # A name without a password is refused too: with some services it is a token.
    refuse_credentials(re.sub(r"//([^/@:]+)@", r"//\1:@", url))
    if not _HTTP.fullmatch(url):
        raise InvalidPipeline(
            "bad-value",
            f"cannot be {shown(url)}",
            "use a URL that starts with `http://` or `https://`, or a `folder`",
        )
    return url


class Registry(Declared):
    """Where schemas are asked for: the URL of a registry with Confluent's API, or a folder."""

    url: Annotated[str, AfterValidator(_check_url)] | None = None
    """The registry's address: `http://localhost:8081/apis/ccompat/v7`."""

    folder: LocalPlace | None = None
    """A folder with a file for each schema."""

    username: Username | None = None
    """A name, or a reference to it such as `env:REGISTRY_USER`."""

    password: Secret | None = None
    """A reference to the password: `env:NAME` or `file:/path`."""

    token: Secret | None = None
    """A reference to a bearer token, instead of name and password."""

    ca: LocalFile | None = None
    """A PEM file with the certificates of those who vouch for the registry."""

    certificate: LocalFile | None = None
    """A PEM file with the certificate that this client shows."""

    key: LocalFile | None = None
    """A PEM file with the key of that certificate."""

    key_password: Secret | None = None
    """A reference to the password of the key."""

    timeout: Duration = Duration(seconds=60)
    """How long unknown schemas are waited for when the registry is down."""

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


def _written_short(value: object) -> object:
    """`registry: ./schemas` is short for `registry: {folder: ./schemas}`; so with a URL."""
    if not isinstance(value, str):
        return value
    return {"url": value} if is_remote(value) else {"folder": value}


RegistryField = Annotated[
    Registry, BeforeValidator(_written_short, json_schema_input_type=str | Registry)
]
