"""From the descriptor of a message to its columns."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

from headgate.formats.protobuf.field import Field, Many, Map, One, Shape, is_map
from headgate.formats.protobuf.json_text import Json, OneJson
from headgate.formats.protobuf.message import Empty, Message
from headgate.formats.protobuf.scalar import SCALARS, Duration, Enum, Timestamp, Wrapped
from headgate.formats.protobuf.wire import BYTES, GROUP, STRING
from headgate.registry.registry import RefusedSchema
from headgate.schema.names import column_names

_MOST_FIELDS = 10_000
_DEEPEST_MESSAGE = 64


@dataclass
class Plan:
    """The columns of one message; made field by field, within bounds."""

    class_for_json: Callable[[str], Any]
    fields: int = 0
    has_groups: bool = False
    """Whether a group stands where columns are: ptars does not read those."""
    has_maps: bool = False
    has_lists_of_numbers: bool = False
    _known: dict[str, Shape | None] = field(default_factory=dict)
    _enums: dict[str, Enum] = field(default_factory=dict)

    def message(self, descriptor: Any, reserved: Collection[str]) -> Message:
        """The message itself; inside, it and all around it are called by name."""
        return self._message(descriptor, (), reserved)

    def _message(
        self, descriptor: Any, around: tuple[str, ...], reserved: Collection[str] = ()
    ) -> Message:
        if len(around) >= _DEEPEST_MESSAGE:
            raise RefusedSchema(f"messages nest deeper than {_DEEPEST_MESSAGE}")
        self.fields += len(descriptor.fields)
        if self.fields > _MOST_FIELDS:
            raise RefusedSchema(f"the message has more than {_MOST_FIELDS} fields")
        ordered = sorted(descriptor.fields, key=lambda one: int(one.number))
        columns = column_names((one.name for one in ordered), reserved)
        inside = (*around, descriptor.full_name)
        place = {one.number: at for at, one in enumerate(ordered)}
        return Message(
            tuple(self._field(*one, inside) for one in zip(ordered, columns, strict=True)),
            tuple(
                tuple(place[one.number] for one in oneof.fields)
                for oneof in descriptor.oneofs
                if len(oneof.fields) > 1
            ),
            frozenset(one.number for one in ordered if one.is_required),
        )

    def _field(self, of: Any, column: str, around: tuple[str, ...]) -> Field:
        if is_map(of):
            self.has_maps = True
            key, item = (of.message_type.fields_by_name[name] for name in ("key", "value"))
            shape = self._shape(item, around)
            return Map(
                of.number,
                column,
                One(1, column, self._shape(key, around), has_presence=True),
                _one(2, column, shape, has_presence=True),
                shape.zero,
            )
        shape = self._shape(of, around)
        if of.is_repeated:
            self.has_lists_of_numbers |= of.message_type is None and of.type not in (STRING, BYTES)
            return Many(of.number, column, shape, of.is_packed)
        return _one(of.number, column, shape, of.has_presence)

    def _shape(self, of: Any, around: tuple[str, ...]) -> Shape:
        if of.enum_type is not None:
            return self._enum(of.enum_type)
        if of.message_type is None:
            return SCALARS[of.type]
        self.has_groups |= of.type == GROUP
        name = of.message_type.full_name
        own = self._protobufs_own(of.message_type)
        if own is not None:
            return own
        if name in around:
            return Json(self.class_for_json(name))
        return self._message(of.message_type, around) if of.message_type.fields else Empty()

    def _enum(self, descriptor: Any) -> Enum:
        """One for all fields of the type: it may have many values."""
        if descriptor.full_name not in self._enums:
            names: dict[int, str] = {}
            for value in descriptor.values:
                names.setdefault(value.number, value.name)
            self._enums[descriptor.full_name] = Enum(names, descriptor.is_closed)
        return self._enums[descriptor.full_name]

    def _protobufs_own(self, descriptor: Any) -> Shape | None:
        name = descriptor.full_name
        if not name.startswith("google.protobuf."):
            return None
        if name not in self._known:
            self._known[name] = self._well_known(descriptor)
        return self._known[name]

    def _well_known(self, descriptor: Any) -> Shape | None:
        from google.protobuf import duration_pb2, struct_pb2, timestamp_pb2, wrappers_pb2

        name = descriptor.name
        for module in (duration_pb2, struct_pb2, timestamp_pb2, wrappers_pb2):
            genuine = module.DESCRIPTOR.message_types_by_name.get(name)
            if genuine is None or descriptor.containing_type is not None:
                continue
            if _signature(genuine) != _signature(descriptor):
                raise RefusedSchema(f"{descriptor.full_name} is not the one of protobuf itself")
            if module is struct_pb2:
                return Json(self.class_for_json(descriptor.full_name))
            if module is wrappers_pb2:
                return Wrapped(SCALARS[descriptor.fields[0].type])
            return Timestamp() if module is timestamp_pb2 else Duration()
        return None


def _one(number: int, column: str, shape: Shape, has_presence: bool) -> Field:
    if isinstance(shape, Json):
        return OneJson(number, column, shape)
    return One(number, column, shape, has_presence)


def _signature(descriptor: Any) -> list[tuple[str, int, int]]:
    return [(one.name, one.number, one.type) for one in descriptor.fields]
