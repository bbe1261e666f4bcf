"""Envelopes: how to find the payload, the schema and the route of a record."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, field_validator

from headgate.config.location import LocalFile
from headgate.config.model import ConfigModel, OneOf, invalid_at
from headgate.config.names import check_pattern, matching
from headgate.errors import InvalidPipeline, listed, shown

_SERVER = r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_LINEAGE = re.compile(rf"log:[!-~][ -~]*|gtid:(?:{_SERVER}|0*(?P<domain>[0-9]{{1,10}}))")
_NUMBERED_LOG = re.compile(r"log:.*\.[0-9]+")


def _check_keys(keys: Mapping[str, Sequence[str]]) -> Mapping[str, tuple[str, ...]]:
    errors: dict[str | int, InvalidPipeline] = {}
    for pattern, columns in keys.items():
        try:
            check_pattern(pattern)
            _check_columns(columns)
        except InvalidPipeline as error:
            errors[pattern] = error
    if errors:
        raise invalid_at(errors)
    return {pattern: tuple(columns) for pattern, columns in keys.items()}


def _check_columns(columns: Sequence[str]) -> None:
    if not columns or not all(columns):
        raise InvalidPipeline(
            "bad-value", "needs column names", "for example `shop.orders: [order_id]`"
        )
    if duplicates := _duplicates(columns):
        raise InvalidPipeline("bad-value", f"has duplicates: {listed(duplicates)}")


def _check_lineages(lineages: Sequence[str]) -> tuple[str, ...]:
    read: list[str] = []
    errors: dict[str | int, InvalidPipeline] = {}
    for index, lineage in enumerate(lineages):
        try:
            read.append(_read_lineage(lineage))
        except InvalidPipeline as error:
            errors[index] = error
    if errors:
        raise invalid_at(errors)
    if duplicates := _duplicates(read):
        raise InvalidPipeline("bad-value", f"has duplicates: {listed(duplicates)}")
    return tuple(read)


def _read_lineage(lineage: str) -> str:
    """Normalize a lineage: GTIDs in lowercase, domain numbers without leading zeros."""
    found = _LINEAGE.fullmatch(lineage)
    if found is None or _NUMBERED_LOG.fullmatch(lineage):
        raise InvalidPipeline(
            "bad-value",
            f"cannot be {shown(lineage)}",
            f"leave out the number of the file: `{lineage.rpartition('.')[0]}`"
            if found
            else "write `log:` and the base name of the binary logs, such as `log:mysql-bin`, or"
            " `gtid:` and a server UUID or a domain number",
        )
    if found["domain"]:
        return f"gtid:{found['domain']}"
    return lineage if lineage.startswith("log:") else lineage.lower()


def _duplicates(words: Sequence[str]) -> list[str]:
    return sorted({word for word in words if words.count(word) > 1})


class Datastream(ConfigModel):
    """Change records of Datastream: the operation, the log position and the row."""

    keys: Annotated[Mapping[str, Sequence[str]], AfterValidator(_check_keys)] = Field(
        default_factory=dict, examples=[{"shop.visits": ["visit_id"]}]
    )
    """Primary keys of tables whose changes do not carry one, by `database.table` pattern; the first
    matching pattern applies."""

    lineages: Annotated[Sequence[str], AfterValidator(_check_lineages)] = Field(
        default=(), examples=[["log:mysql-bin", "gtid:3e11fa47-71ca-11e1-9e33-c80aa9429562"]]
    )
    """Log lineages of the source in failover order, oldest first. Positions are comparable only
    within a lineage."""

    def key_of(self, name: str) -> tuple[str, ...] | None:
        """Return the declared key of a source table, given as `database.table`."""
        pattern = matching(name, self.keys)
        return None if pattern is None else tuple(self.keys[pattern])


_FIELD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MESSAGE = re.compile(rf"{_FIELD.pattern}(?:\.{_FIELD.pattern})*")


def _check_message(name: str) -> str:
    if not _MESSAGE.fullmatch(name):
        raise InvalidPipeline(
            "bad-value",
            f"cannot be {shown(name)}",
            "write the message name, with its package if it has one: `games.v1.Wrapper`",
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
            "relative paths are resolved against the folder of the pipeline file",
        )
    return path


MessageName = Annotated[str, AfterValidator(_check_message)]
FieldName = Annotated[str, AfterValidator(_check_field)]


class Confluent(ConfigModel):
    """Confluent wire format: a zero byte, the schema id, then the payload."""

    route: Literal["topic", "record"] = "topic"
    """What selects the table: the topic, or the record name of the schema."""


def _read_payload_message(written: object) -> object:
    """Expand a single name to one for every route."""
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
    errors: dict[str | int, InvalidPipeline] = {}
    for pattern, name in names.items():
        try:
            _check_message(name)
        except InvalidPipeline as error:
            errors[pattern] = error
    if errors:
        raise invalid_at(errors)
    return names


@dataclass(frozen=True)
class PayloadMessages:
    """Payload message names by route pattern; the first matching pattern applies."""

    by_pattern: tuple[tuple[str, str], ...] = ()

    def for_route(self, route: str) -> str | None:
        """Return the declared name, or None if the schema must have a single candidate."""
        matches = (name for pattern, name in self.by_pattern if fnmatchcase(route, pattern))
        return next(matches, None)


class Wrapper(ConfigModel):
    """A protobuf message around each payload, with its route and schema id."""

    message: MessageName = Field(examples=["wrapper"])
    """Name of the wrapper message."""

    route: FieldName = Field(examples=["game_name"])
    """Field whose value selects the table."""

    schema_id: FieldName = Field(examples=["schema_id"])
    """Field with the registry id of the payload's schema."""

    payload: FieldName = Field(examples=["payload"])
    """Field with the payload bytes."""

    payload_message: Annotated[
        Mapping[str, str],
        BeforeValidator(_read_payload_message, json_schema_input_type=str | dict[str, str]),
        AfterValidator(_check_payload_messages),
    ] = Field(default_factory=dict, examples=["Event"])
    """Message type of the payload, for schemas that define several: one name, or names by route
    pattern (the first matching pattern applies), with or without package. Defaults to the only
    top-level message that no other message uses."""

    proto: Annotated[LocalFile, AfterValidator(_check_proto)] | None = None
    """The `.proto` file that defines the wrapper, if the registry does not have it."""

    @property
    def payload_messages(self) -> PayloadMessages:
        return PayloadMessages(tuple(self.payload_message.items()))

    @field_validator("schema_id", "payload", mode="after")
    @classmethod
    def _must_differ(cls, name: str, info: ValidationInfo) -> str:
        for other in ("route", "schema_id"):
            if info.data.get(other) == name:
                raise InvalidPipeline("bad-value", f"is {shown(name)}, the same as `{other}`")
        return name


class EnvelopeKeys(OneOf):
    """The `envelope` key of the file."""

    confluent: Confluent | None = None
    wrapper: Wrapper | None = None
    datastream: Datastream | None = None


EnvelopeField = Annotated[Confluent | Wrapper | Datastream, EnvelopeKeys.as_field()]
