"""Secrets stand outside the pipeline file; the file only says where."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Literal, Self

from pydantic import GetCoreSchemaHandler, PlainValidator, ValidationInfo
from pydantic_core import CoreSchema

from headgate.config.location import absolute, folder_of, refuse_credentials
from headgate.config.model import refused_at
from headgate.config.units import schema_of_value
from headgate.errors import InvalidPipeline, PipelineFileError, shown

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_HINT = "write `env:NAME` for an environment variable, `file:/path` for a file"


@dataclass(frozen=True, repr=False)
class Secret:
    """Where a secret is to be found: `env:NAME` or `file:/path`. It never holds the secret."""

    kind: Literal["env", "file"]
    name: str

    @classmethod
    def parse(cls, reference: str, folder: str = ".") -> Self:
        """Read a reference; a relative path in it is relative to the folder."""
        kind, _, name = reference.partition(":")
        if kind == "env" and _VARIABLE.fullmatch(name):
            return cls("env", name)
        if kind == "file" and name.strip("/") and name.isprintable():
            path = re.sub(r"\A//+", "/", name)
            return cls("file", absolute(path, os.path.abspath(folder)))
        raise InvalidPipeline("secret-in-file", "must be a reference, not the secret itself", _HINT)

    def resolve(self) -> str:
        """The secret itself, read anew at each use so that it can be rotated."""
        value = os.environ.get(self.name) if self.kind == "env" else self._read_file()
        if not value:
            looked = "the environment variable" if self.kind == "env" else "the file"
            raise PipelineFileError(
                "secret-missing",
                f"the secret `{self}` is missing: looked in {looked} `{self.name}`",
                f"set {looked}; the pipeline needs it to connect",
            )
        return value

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
        # Whatever stands here may be the secret, so no message repeats it.
        return cls.parse(value if isinstance(value, str) else "", folder_of(info))

    @classmethod
    def __get_pydantic_core_schema__(cls, _: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        return schema_of_value(cls._read)


def _read_username(value: object, info: ValidationInfo) -> str | Secret:
    if isinstance(value, Secret):
        return value
    if not isinstance(value, str) or not value.strip():
        raise InvalidPipeline("wrong-type", f"needs text, not {shown(value)}", _HINT)
    is_reference = value.startswith(("env:", "file:"))
    return Secret.parse(value, folder_of(info)) if is_reference else value


Username = Annotated[str | Secret, PlainValidator(_read_username, json_schema_input_type=str)]
"""A user's name may stand in the file; it may also be a reference."""

_SECRET_KEY = re.compile(
    r"password|secret|token|jaas|credential|keystore|basic\.?auth|user\.?info", re.IGNORECASE
)
_HARMLESS_KEY = re.compile(r"\.(enabled|file|location|path|provider|type)$", re.IGNORECASE)
_SECRET_VALUE = re.compile(r"(password|secret|token)[^\s=]*\s*=", re.IGNORECASE)
_ENVIRONMENT = re.compile(r"env:\w+", re.ASCII)


def needs_reference(key: str) -> bool:
    """Whether the value of such a setting is a secret."""
    return bool(_SECRET_KEY.search(key)) and not _HARMLESS_KEY.search(key)


def read_setting(key: str, value: object, folder: str) -> str | Secret:
    """The setting as the text that Spark takes, or as a reference to a secret."""
    match value:
        case Secret():
            return value
        case str() if needs_reference(key) or _ENVIRONMENT.fullmatch(value):
            return Secret.parse(value, folder)
        case _ if needs_reference(key):
            return Secret.parse("")
        case bool():
            return str(value).lower()
        case int() | float():
            return str(value)
        case str() if _SECRET_VALUE.search(value):
            raise InvalidPipeline(
                "secret-in-file",
                "contains a secret",
                "use a setting whose whole value is the secret, as a reference such as `env:NAME`",
            )
        case str():
            return refuse_credentials(value)
        case _:
            raise InvalidPipeline("wrong-type", f"needs text or a number, not {shown(value)}")


def settings_checked_by(check: Callable[[str], None]) -> PlainValidator:
    """Reads a mapping of settings; every key that is refused is a finding of its own."""

    def read(value: object, info: ValidationInfo) -> Mapping[str, str | Secret]:
        if not isinstance(value, Mapping):
            raise InvalidPipeline("wrong-type", f"needs keys and values, not {shown(value)}")
        settings: dict[str, str | Secret] = {}
        refused: dict[str | int, InvalidPipeline] = {}
        for key, each in value.items():
            try:
                check(str(key))
                settings[str(key)] = read_setting(str(key), each, folder_of(info))
            except InvalidPipeline as error:
                refused[str(key)] = error
        if refused:
            raise refused_at(refused)
        return settings

    return PlainValidator(read, json_schema_input_type=dict[str, str | int | float | bool])


def check_spark_setting(key: str) -> None:
    if not key.startswith("spark."):
        raise InvalidPipeline(
            "unknown-key", "is not a setting of Spark", f"did you mean `spark.{key}`?"
        )
