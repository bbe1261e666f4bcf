"""Secrets: references to values that are kept outside of the pipeline file."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Literal, Self

from pydantic import GetCoreSchemaHandler, PlainValidator, ValidationInfo
from pydantic_core import CoreSchema

from headgate.config.location import absolute, folder_of, reject_credentials
from headgate.config.model import invalid_at
from headgate.config.secret_patterns import contains_secret, is_secret_name
from headgate.config.units import value_schema
from headgate.errors import InvalidPipeline, PipelineFileError, shown

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_TASK_SECRETS = "HEADGATE_SECRETS"
"""Environment variable of tasks on other machines: secrets by reference."""
_HINT = "write `env:NAME` for an environment variable, `file:/path` for a file"


@dataclass(frozen=True, repr=False)
class Secret:
    """A reference to a secret, `env:NAME` or `file:/path`. It never holds the secret itself."""

    kind: Literal["env", "file"]
    name: str

    @classmethod
    def parse(cls, reference: str, folder: str = ".") -> Self:
        """Parse a reference; relative paths are resolved against the folder."""
        kind, _, name = reference.partition(":")
        if kind == "env" and _VARIABLE.fullmatch(name):
            return cls("env", name)
        if kind == "file" and name.strip("/") and name.isprintable():
            path = re.sub(r"\A//+", "/", name)
            return cls("file", absolute(path, os.path.abspath(folder)))
        raise InvalidPipeline("secret-in-file", "must be a reference, not the secret itself", _HINT)

    def resolve(self) -> str:
        """Return the secret, read on every call so that it can be rotated."""
        value = self._value() or json.loads(os.environ.get(_TASK_SECRETS, "{}")).get(str(self))
        if not value:
            looked = "the environment variable" if self.kind == "env" else "the file"
            raise PipelineFileError(
                "secret-missing",
                f"the secret `{self}` is missing: looked in {looked} `{self.name}`",
                f"set {looked}; the pipeline needs it to connect",
            )
        return str(value)

    def _value(self) -> str | None:
        return os.environ.get(self.name) if self.kind == "env" else self._read_file()

    def _read_file(self) -> str | None:
        try:
            with open(self.name, encoding="utf-8") as file:
                return file.read().rstrip("\r\n")
        except (OSError, UnicodeDecodeError):
            return None

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


def task_secrets(secrets: Iterable[Secret]) -> dict[str, str]:
    """Return the environment variables with which tasks on other machines resolve secrets."""
    resolved = {str(secret): secret.resolve() for secret in secrets}
    return {_TASK_SECRETS: json.dumps(resolved)} if resolved else {}


def _read_username(value: object, info: ValidationInfo) -> str | Secret:
    if isinstance(value, Secret):
        return value
    if not isinstance(value, str) or not value.strip():
        raise InvalidPipeline("wrong-type", f"needs text, not {shown(value)}", _HINT)
    is_reference = value.startswith(("env:", "file:"))
    return Secret.parse(value, folder_of(info)) if is_reference else value


Username = Annotated[str | Secret, PlainValidator(_read_username, json_schema_input_type=str)]
"""A user name, given in the file or as a reference."""

_ENVIRONMENT = re.compile(r"env:\w+", re.ASCII)


def read_setting(key: str, value: object, folder: str) -> str | Secret:
    """Return a setting as text for Spark, or as a reference to a secret."""
    match value:
        case Secret():
            return value
        case bool():
            return str(value).lower()
        case "true" | "false":
            return str(value)
        case str() if is_secret_name(key) or _ENVIRONMENT.fullmatch(value):
            return Secret.parse(value, folder)
        case _ if is_secret_name(key):
            return Secret.parse("")
        case int() | float():
            return str(value)
        case str() if contains_secret(value):
            raise InvalidPipeline(
                "secret-in-file",
                "contains a secret",
                "use a setting whose whole value is the secret, as a reference such as `env:NAME`"
                " or `file:/path`",
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
