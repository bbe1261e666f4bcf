"""Secrets: references to values that are kept outside of the pipeline file."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Self
from urllib.parse import quote

from pydantic import GetCoreSchemaHandler, PlainValidator, ValidationInfo
from pydantic_core import CoreSchema

from headgate.config.location import absolute, folder_of, reject_credentials
from headgate.config.model import invalid_at
from headgate.config.secret_patterns import contains_secret, is_secret_name
from headgate.config.secret_sources import hint, is_of_this_machine, is_reference, read_secret
from headgate.config.units import value_schema
from headgate.errors import InvalidPipeline, PipelineFileError, shown

_TASK_SECRETS = "HEADGATE_SECRETS"
"""Environment variable of tasks on other machines: secrets by reference."""
_VISIBLE_ASCII = re.compile(r"[!-~]+")
_LIKE_A_REFERENCE = re.compile(r"[a-z][a-z0-9+.-]*:\S+")


@dataclass(frozen=True, repr=False)
class Secret:
    """A reference to a secret, such as `env:NAME`. It never holds the secret itself."""

    kind: str
    """The scheme: `env`, `file`, `databricks` or that of a plug-in."""

    name: str
    """The reference without its scheme."""

    @classmethod
    def parse(cls, reference: str, folder: str = ".") -> Self:
        """Parse a reference; relative paths are resolved against the folder."""
        kind, _, name = reference.partition(":")
        if not is_reference(kind, name):
            message = "must be a reference, not the secret itself"
            raise InvalidPipeline("secret-in-file", message, hint())
        if kind == "file":
            path = re.sub(r"\A//+", "/", name)
            return cls("file", absolute(path, os.path.abspath(folder)))
        return cls(kind, name)

    def resolve(self) -> str:
        """Return the secret, read again so that it can be rotated; a service's once a minute."""
        of_driver = json.loads(os.environ.get(_TASK_SECRETS, "{}")).get(str(self))
        if is_of_this_machine(self.kind):
            value = read_secret(self.kind, self.name) or of_driver
        else:
            # Machines of a cluster have neither the driver's plug-ins nor its logins.
            value = of_driver or read_secret(self.kind, self.name)
        if not value:
            looked = "the environment variable" if self.kind == "env" else "the file"
            raise PipelineFileError(
                "secret-missing",
                f"the secret `{self}` is missing: looked in {looked} `{self.name}`",
                f"set {looked}; the pipeline needs it to connect",
            )
        _resolved.add(str(value))
        return str(value)

    def resolve_for_header(self) -> str:
        """Return the secret if it fits in an HTTP header; clients fail with it in their message."""
        value = self.resolve()
        if not _VISIBLE_ASCII.fullmatch(value):
            raise PipelineFileError(
                "bad-value",
                f"the secret `{self}` has a space, a line break or a letter that is not ASCII",
                "store the key or token alone, without a name or quotes around it",
            )
        return value

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"

    def __repr__(self) -> str:
        return f"Secret({self})"

    @classmethod
    def _read(cls, value: object, info: ValidationInfo) -> Self:
        if isinstance(value, cls):
            return value
        # The value may be the secret itself, so no message repeats it.
        return cls.parse(value if isinstance(value, str) else "", folder_of(info))

    @classmethod
    def __get_pydantic_core_schema__(cls, _: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        return value_schema(cls._read)


_resolved: set[str] = set()
_SHORTEST_MASKED = 8
"""Shorter secrets, such as user names, may be words of any message."""


def masked(text: str) -> str:
    """Replace the secrets that this process has resolved.

    For errors of other programs: an object storage that refuses a key repeats it, for instance.
    """
    for value in sorted(_resolved, key=len, reverse=True):
        if len(value) >= _SHORTEST_MASKED:
            for form in (value, repr(value)[1:-1], quote(value, safe="")):
                text = text.replace(form, "***")
    return text


def task_secrets(secrets: Iterable[Secret]) -> dict[str, str]:
    """Return the environment variables with which tasks on other machines resolve secrets."""
    resolved = {str(secret): secret.resolve() for secret in secrets}
    return {_TASK_SECRETS: json.dumps(resolved)} if resolved else {}


def _read_username(value: object, info: ValidationInfo) -> str | Secret:
    if isinstance(value, Secret):
        return value
    if not isinstance(value, str) or not value.strip():
        raise InvalidPipeline("wrong-type", f"needs text, not {shown(value)}", hint())
    # Also of unknown schemes: the reference itself would be sent as the name.
    return Secret.parse(value, folder_of(info)) if _LIKE_A_REFERENCE.fullmatch(value) else value


Username = Annotated[str | Secret, PlainValidator(_read_username, json_schema_input_type=str)]
"""A user name, given in the file or as a reference."""


def _is_reference_anywhere(value: str) -> bool:
    """Whether a value is a reference even in a setting that may have any text, such as a path."""
    scheme, colon, name = value.partition(":")
    return bool(colon) and scheme != "file" and is_reference(scheme, name)


def read_setting(key: str, value: object, folder: str) -> str | Secret:
    """Return a setting as text for Spark, or as a reference to a secret."""
    match value:
        case Secret():
            return value
        case bool():
            return str(value).lower()
        case "true" | "false":
            return str(value)
        case str() if is_secret_name(key) or _is_reference_anywhere(value):
            return Secret.parse(value, folder)
        case _ if is_secret_name(key):
            return Secret.parse("")
        case int() | float():
            return str(value)
        case str() if contains_secret(value):
            raise InvalidPipeline(
                "secret-in-file",
                "contains a secret",
                f"use a setting whose whole value is the secret, and {hint()}",
            )
        case str():
            return reject_credentials(value)
        case _:
            raise InvalidPipeline("wrong-type", f"needs text or a number, not {shown(value)}")


Check = Callable[[str, str | Secret], None]
"""Raises InvalidPipeline for a setting that is not allowed."""


def settings_checked_by(
    check_key: Callable[[str], None], check: Check = lambda key, value: None
) -> PlainValidator:
    """Return a validator for settings that reports every invalid one."""

    def read(value: object, info: ValidationInfo) -> Mapping[str, str | Secret]:
        if not isinstance(value, Mapping):
            raise InvalidPipeline("wrong-type", f"needs keys and values, not {shown(value)}")
        settings: dict[str, str | Secret] = {}
        errors: dict[str | int, InvalidPipeline] = {}
        for key, each in value.items():
            try:
                check_key(str(key))
                setting = read_setting(str(key), each, folder_of(info))
                check(str(key), setting)
                settings[str(key)] = setting
            except InvalidPipeline as error:
                errors[str(key)] = error
        if errors:
            raise invalid_at(errors)
        return settings

    return PlainValidator(read, json_schema_input_type=dict[str, str | int | float | bool])


def check_spark_setting(key: str) -> None:
    if not key.startswith("spark."):
        raise InvalidPipeline(
            "unknown-key", "is not a Spark setting", f"did you mean `spark.{key}`?"
        )


_ON_COMMAND_LINES = re.compile(
    r"spark\.(?:(?:driver|executor)\.(?:memory|(?:extra|default)JavaOptions|extraClassPath"
    r"|extraLibraryPath)|master|home|app\.name|jars(?:\..*)?|files|archives|submit\..*)"
)


def check_spark_value(key: str, value: str | Secret) -> None:
    """Raise for a reference whose value Spark would show in the command line of a process."""
    if isinstance(value, Secret) and _ON_COMMAND_LINES.fullmatch(key):
        raise InvalidPipeline(
            "bad-value",
            "cannot be a reference: Spark passes it in a command line, which all users can read",
            "write the value; if it has a secret, give that to Spark in another setting",
        )
