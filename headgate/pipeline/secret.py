"""Secrets stand outside the pipeline file; the file only says where."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Annotated, Literal, Self

from pydantic import GetCoreSchemaHandler, PlainValidator, ValidationInfo
from pydantic_core import CoreSchema

from headgate.errors import PipelineFileError
from headgate.pipeline.finding import InvalidPipeline
from headgate.pipeline.place import absolute, folder_of
from headgate.pipeline.value_schema import schema_of_value
from headgate.pipeline.wording import shown

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_HINT = "refer to it: `env:NAME` for an environment variable, `file:/path` for a file"


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
                f"the secret `{self}` is not there: looked in {looked} `{self.name}`",
                f"put the secret into {looked}; without it the pipeline cannot connect",
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
