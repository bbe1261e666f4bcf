"""How a record is opened: which bytes are the payload, which schema reads it, where it goes."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field, ValidationInfo, field_validator

from headgate.pipeline.datastream import Datastream
from headgate.pipeline.declared import Declared
from headgate.pipeline.finding import InvalidPipeline
from headgate.pipeline.one_of import OneOf
from headgate.pipeline.place import LocalFile
from headgate.pipeline.wording import shown

_FIELD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MESSAGE = re.compile(rf"{_FIELD.pattern}(?:\.{_FIELD.pattern})*")


def _check_message(name: str) -> str:
    if not _MESSAGE.fullmatch(name):
        raise InvalidPipeline(
            "bad-value",
            f"cannot be {shown(name)}",
            "write the message's name, with its package if it has one: `games.v1.Wrapper`",
        )
    return name


def _check_field(name: str) -> str:
    if not _FIELD.fullmatch(name):
        raise InvalidPipeline(
            "bad-value", f"cannot be {shown(name)}", "write the name of a field of the message"
        )
    return name


def _check_proto(path: str) -> str:
    if not os.path.isfile(path):
        raise InvalidPipeline(
            "bad-proto",
            f"is `{path}`, and there is no such file",
            "a relative path is relative to the pipeline file's folder",
        )
    return path


MessageName = Annotated[str, AfterValidator(_check_message)]
FieldName = Annotated[str, AfterValidator(_check_field)]


class Confluent(Declared):
    """Confluent's framing: a zero byte, the schema's id, then the payload."""

    route: Literal["topic", "record"] = "topic"
    """What decides the table: the record's topic, or the name of the record's type."""


class Wrapper(Declared):
    """A protobuf message around each payload, which says what kind of payload it is."""

    message: MessageName = Field(examples=["wrapper"])
    """The name of the wrapper message."""

    route: FieldName = Field(examples=["game_name"])
    """The field whose value decides the table."""

    schema_id: FieldName = Field(examples=["schema_id"])
    """The field with the id under which the registry knows the payload's schema."""

    payload: FieldName = Field(examples=["payload"])
    """The field with the payload's bytes."""

    proto: Annotated[LocalFile, AfterValidator(_check_proto)] | None = None
    """The .proto file that defines the wrapper, when the registry does not have it."""

    @field_validator("schema_id", "payload", mode="after")
    @classmethod
    def _a_field_of_its_own(cls, name: str, info: ValidationInfo) -> str:
        for other in ("route", "schema_id"):
            if info.data.get(other) == name:
                raise InvalidPipeline("bad-value", f"is {shown(name)}, which `{other}` is already")
        return name


class EnvelopeKeys(OneOf):
    """The envelope as the file writes it."""

    confluent: Confluent | None = None
    wrapper: Wrapper | None = None


Envelope = Annotated[Confluent | Wrapper, EnvelopeKeys.as_field()]


class ChangeEnvelopeKeys(OneOf):
    """The envelope of change files as the file writes it."""

    of_the_other_kind: ClassVar[Mapping[str, str]] = dict.fromkeys(
        EnvelopeKeys.model_fields, "change files come with `envelope: datastream`"
    )

    datastream: Datastream | None = None


ChangeEnvelope = Annotated[Datastream, ChangeEnvelopeKeys.as_field()]
