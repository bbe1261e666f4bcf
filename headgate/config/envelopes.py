"""How a record is opened: which bytes are the payload, which schema reads it, where it goes."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, field_validator

from headgate.config.location import LocalFile
from headgate.config.model import Declared, OneOf, refused_at
from headgate.config.names import check_pattern, matching
from headgate.errors import InvalidPipeline, listed, shown

_SERVER = r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_LINEAGE = re.compile(rf"log:[!-~][ -~]*|gtid:(?:{_SERVER}|0*(?P<domain>[0-9]{{1,10}}))")
_NUMBERED_LOG = re.compile(r"log:.*\.[0-9]+")


def _check_keys(keys: Mapping[str, Sequence[str]]) -> Mapping[str, tuple[str, ...]]:
    refused: dict[str | int, InvalidPipeline] = {}
    for pattern, columns in keys.items():
        try:
            check_pattern(pattern)
            _check_columns(columns)
        except InvalidPipeline as error:
            refused[pattern] = error
    if refused:
        raise refused_at(refused)
    return {pattern: tuple(columns) for pattern, columns in keys.items()}


def _check_columns(columns: Sequence[str]) -> None:
    if not columns or not all(columns):
        raise InvalidPipeline(
            "bad-value", "needs the names of columns", "for example `shop.orders: [order_id]`"
        )
    if twice := _twice(columns):
        raise InvalidPipeline("bad-value", f"has duplicates: {listed(twice)}")


def _check_lineages(lineages: Sequence[str]) -> tuple[str, ...]:
    read: list[str] = []
    refused: dict[str | int, InvalidPipeline] = {}
    for index, lineage in enumerate(lineages):
        try:
            read.append(_read_lineage(lineage))
        except InvalidPipeline as error:
            refused[index] = error
    if refused:
        raise refused_at(refused)
    if twice := _twice(read):
        raise InvalidPipeline("bad-value", f"has duplicates: {listed(twice)}")
    return tuple(read)


def _read_lineage(lineage: str) -> str:
    """As changes tell it: the letters of a GTID are small, and its numbers without zeros."""
    found = _LINEAGE.fullmatch(lineage)
    if found is None or _NUMBERED_LOG.fullmatch(lineage):
        raise InvalidPipeline(
            "bad-value",
            f"cannot be {shown(lineage)}",
            f"leave out the number of the file: `{lineage.rpartition('.')[0]}`"
            if found
            else "write `log:` and the name of a series of logs, such as `log:mysql-bin`, or"
            " `gtid:` and the UUID of a server or the number of a domain",
        )
    if found["domain"]:
        return f"gtid:{found['domain']}"
    return lineage if lineage.startswith("log:") else lineage.lower()


def _twice(words: Sequence[str]) -> list[str]:
    return sorted({word for word in words if words.count(word) > 1})


class Datastream(Declared):
    """Datastream's records of changes: what happened to a row, where in the log, and the row."""

    keys: Annotated[Mapping[str, Sequence[str]], AfterValidator(_check_keys)] = Field(
        default_factory=dict, examples=[{"shop.visits": ["visit_id"]}]
    )
    """The keys of tables whose changes do not name one, by pattern of `database.table`; of several
    patterns, the first that matches."""

    lineages: Annotated[Sequence[str], AfterValidator(_check_lineages)] = Field(
        default=(), examples=[["log:mysql-bin", "gtid:3e11fa47-71ca-11e1-9e33-c80aa9429562"]]
    )
    """Series of logs, in the order in which their servers took over from each other; positions
    say nothing across them."""

    def key_of(self, name: str) -> tuple[str, ...] | None:
        """The declared key of a source's table, given as `database.table`."""
        pattern = matching(name, self.keys)
        return None if pattern is None else tuple(self.keys[pattern])


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
            f"is `{path}`, which does not exist",
            "a relative path is relative to the pipeline file's folder",
        )
    return path


MessageName = Annotated[str, AfterValidator(_check_message)]
FieldName = Annotated[str, AfterValidator(_check_field)]


class Confluent(Declared):
    """Confluent's framing: a zero byte, the schema's id, then the payload."""

    route: Literal["topic", "record"] = "topic"
    """What decides the table: the record's topic, or the name of the record's type."""


def _read_payload_message(written: object) -> object:
    """Expand a single name, which counts for every route."""
    if isinstance(written, str):
        return {"*": _check_message(written)}
    if not isinstance(written, Mapping):
        raise InvalidPipeline(
            "wrong-type",
            f"needs the name of a message, or names by route, not {shown(written)}",
            "for example `payload_message: Event` or `payload_message: {chess*: Move}`",
        )
    return written


def _check_payload_messages(names: Mapping[str, str]) -> Mapping[str, str]:
    refused: dict[str | int, InvalidPipeline] = {}
    for pattern, name in names.items():
        try:
            _check_message(name)
        except InvalidPipeline as error:
            refused[pattern] = error
    if refused:
        raise refused_at(refused)
    return names


@dataclass(frozen=True)
class PayloadMessages:
    """Names of payload messages by pattern of route; the first pattern that matches counts."""

    by_pattern: tuple[tuple[str, str], ...] = ()

    def for_route(self, route: str) -> str | None:
        """Return the declared name, or None where the schema itself has to leave no choice."""
        matches = (name for pattern, name in self.by_pattern if fnmatchcase(route, pattern))
        return next(matches, None)


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

    payload_message: Annotated[
        Mapping[str, str],
        BeforeValidator(_read_payload_message, json_schema_input_type=str | dict[str, str]),
        AfterValidator(_check_payload_messages),
    ] = Field(default_factory=dict, examples=["Event"])
    """The message that payloads are, if a schema defines several: one name for all, or names by
    pattern of route (the first that matches counts), with or without package. By default the one
    top-level message that no other contains."""

    proto: Annotated[LocalFile, AfterValidator(_check_proto)] | None = None
    """The .proto file that defines the wrapper, when the registry does not have it."""

    @property
    def payload_messages(self) -> PayloadMessages:
        return PayloadMessages(tuple(self.payload_message.items()))

    @field_validator("schema_id", "payload", mode="after")
    @classmethod
    def _a_field_of_its_own(cls, name: str, info: ValidationInfo) -> str:
        for other in ("route", "schema_id"):
            if info.data.get(other) == name:
                raise InvalidPipeline("bad-value", f"is {shown(name)}, the same as `{other}`")
        return name


class EnvelopeKeys(OneOf):
    """The envelope as the file writes it."""

    confluent: Confluent | None = None
    wrapper: Wrapper | None = None
    datastream: Datastream | None = None


EnvelopeField = Annotated[Confluent | Wrapper | Datastream, EnvelopeKeys.as_field()]
