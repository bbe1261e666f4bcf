"""How the connection to Kafka is secured, and as whom it logs in."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, ValidationInfo, field_validator

from headgate.pipeline.declared import Declared
from headgate.pipeline.finding import InvalidPipeline
from headgate.pipeline.place import LocalFile
from headgate.pipeline.secret import Secret, Username


class Security(Declared):
    """How the connection to Kafka is secured, and as whom it logs in."""

    protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = Field(
        examples=["SASL_SSL"]
    )
    """What is spoken with the brokers; those that start with `SASL` log in."""

    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] | None = None
    """How the password is shown to the broker."""

    username: Username | None = None
    """A name, or a reference to it such as `env:KAFKA_USER`."""

    password: Secret | None = None
    """A reference to the password: `env:NAME` or `file:/path`."""

    ca: LocalFile | None = None
    """A PEM file with the certificates of those who vouch for the brokers."""

    certificate: LocalFile | None = None
    """A PEM file with the certificate that this client shows."""

    key: LocalFile | None = None
    """A PEM file with the key of that certificate."""

    key_password: Secret | None = None
    """A reference to the password of the key."""

    @field_validator("mechanism", "username", "password", mode="after")
    @classmethod
    def _needed_to_log_in(cls, value: object, info: ValidationInfo) -> object:
        protocol = info.data.get("protocol")
        if protocol is None:
            return value
        if protocol.startswith("SASL_") and value is None:
            raise InvalidPipeline("missing-key", f"is missing: `{protocol}` logs in with it")
        if not protocol.startswith("SASL_") and value is not None:
            raise InvalidPipeline(
                "bad-value",
                f"has no use with `{protocol}`",
                f"to log in, write `protocol: SASL_{protocol}`",
            )
        return value

    @field_validator("ca", "certificate", "key", "key_password", mode="after")
    @classmethod
    def _needs_encryption(cls, value: object, info: ValidationInfo) -> object:
        protocol = info.data.get("protocol")
        if value is not None and protocol is not None and not protocol.endswith("SSL"):
            raise InvalidPipeline(
                "bad-value", f"has no use with `{protocol}`", "it needs `SSL` or `SASL_SSL`"
            )
        return value

    @field_validator("key", mode="after")
    @classmethod
    def _with_certificate(cls, key: str | None, info: ValidationInfo) -> str | None:
        if "certificate" in info.data and (key is None) != (info.data["certificate"] is None):
            raise InvalidPipeline("missing-key", "and `certificate` go together: give both")
        return key
