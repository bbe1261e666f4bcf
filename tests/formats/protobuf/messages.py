"""Random messages of any type, filled by way of its descriptor."""

from __future__ import annotations

import math
from random import Random
from typing import Any

from google.protobuf.descriptor import FieldDescriptor as Kind

INTEGERS = {
    **dict.fromkeys([Kind.TYPE_INT32, Kind.TYPE_SINT32, Kind.TYPE_SFIXED32], (-(2**31), 2**31 - 1)),
    **dict.fromkeys([Kind.TYPE_INT64, Kind.TYPE_SINT64, Kind.TYPE_SFIXED64], (-(2**63), 2**63 - 1)),
    **dict.fromkeys([Kind.TYPE_UINT32, Kind.TYPE_FIXED32], (0, 2**32 - 1)),
    **dict.fromkeys([Kind.TYPE_UINT64, Kind.TYPE_FIXED64], (0, 2**64 - 1)),
}
DOUBLES = [0.0, -0.0, 1.5, -1e300, 5e-324, math.inf, -math.inf, math.nan]
FLOATS = [0.0, -0.0, 1.5, -(2.0**100), 2.0**-149, math.inf, -math.inf, math.nan]
TEXTS = ["", "a", "Grüße", "\0", "\U0001f409", "x" * 200, '"b\'"', "b'\\xff'"]
BLOBS = [b"", b"\0\xff", b"a" * 130]
NOT_INSIDE_JSON = {"google.protobuf.Any", "google.protobuf.FieldMask"}
"""Protobuf's printer has ways of its own with these."""


class MessageMaker:
    """The same seed, the same messages."""

    def __init__(self, seed: int, share: float) -> None:
        self.random = Random(seed)
        self.share = share

    def fill(self, message: Any, around: tuple[str, ...] = ()) -> Any:
        name = message.DESCRIPTOR.full_name
        if name.startswith("google.protobuf."):
            self._fill_protobufs_own(message, name)
            return message
        share = self.share if not around else min(1.0, 2.0 / (1 + len(message.DESCRIPTOR.fields)))
        inside = (*around, name)
        for field in message.DESCRIPTOR.fields:
            if self.random.random() < share:
                self._fill_field(message, field, inside)
        return message

    def _fill_field(self, message: Any, field: Any, around: tuple[str, ...]) -> None:
        of = field.message_type
        if len(around) > 4 and of is not None:
            return
        if len(set(around)) < len(around) and of is not None and of.full_name in NOT_INSIDE_JSON:
            return
        value = getattr(message, field.name)
        if of is not None and of.has_options and of.GetOptions().map_entry:
            for _ in range(self.random.randint(1, 3)):
                key = self._scalar(of.fields_by_name["key"])
                item = of.fields_by_name["value"]
                if item.message_type is not None:
                    self.fill(value[key], around)
                else:
                    value[key] = self._scalar(item)
        elif field.is_repeated:
            for _ in range(self.random.randint(1, 3)):
                if of is not None:
                    self.fill(value.add(), around)
                else:
                    value.append(self._scalar(field))
        elif of is not None:
            value.SetInParent()
            self.fill(value, around)
        else:
            setattr(message, field.name, self._scalar(field))

    def _scalar(self, field: Any) -> Any:
        pick = self.random
        if field.type in INTEGERS:
            low, high = INTEGERS[field.type]
            return pick.choice([low, high, 0, 1, 127, 128, pick.randint(low, high)])
        if field.type == Kind.TYPE_ENUM:
            known = list(field.enum_type.values_by_number)
            return pick.choice(known if field.enum_type.is_closed else [*known, 99, -5, 2**31 - 1])
        choices: dict[int, list[Any]] = {
            Kind.TYPE_DOUBLE: DOUBLES,
            Kind.TYPE_FLOAT: FLOATS,
            Kind.TYPE_BOOL: [True, False],
            Kind.TYPE_STRING: TEXTS,
            Kind.TYPE_BYTES: BLOBS,
        }
        return pick.choice(choices[field.type])

    def _fill_protobufs_own(self, message: Any, name: str) -> None:
        pick = self.random
        kind = name.rpartition(".")[2]
        if kind == "Timestamp":
            message.seconds = pick.randint(-62_135_596_800, 253_402_300_799)
            message.nanos = pick.choice([0, 999, 1_000, 999_999_999])
        elif kind == "Duration":
            sign = pick.choice([-1, 1])
            message.seconds = sign * pick.randint(0, 315_576_000_000)
            message.nanos = sign * pick.choice([0, 999, 1_000, 999_999_999])
        elif kind in ("Struct", "ListValue", "Value"):
            self._fill_anything(message, kind)
        elif kind == "FieldMask":
            message.paths.extend(pick.sample(["a", "b.c", "camelCase"], pick.randint(0, 2)))
        elif kind == "Any":
            message.type_url, message.value = pick.choice(TEXTS), pick.choice(BLOBS)
        elif kind != "Empty":
            message.value = self._scalar(message.DESCRIPTOR.fields_by_name["value"])

    def _fill_anything(self, message: Any, kind: str) -> None:
        pick = self.random
        plain = [None, True, 0.0, 1.5, "text", "Grüße", [1.0, [], {"a": None}], {"z": 1.0, "a": {}}]
        if kind == "Struct":
            message.update(
                {pick.choice(TEXTS): pick.choice(plain) for _ in range(pick.randint(0, 3))}
            )
        elif kind == "ListValue":
            message.extend(pick.choice(plain) for _ in range(pick.randint(0, 3)))
        elif pick.random() < 0.9:
            message.struct_value.update({"value": pick.choice(plain)})
            value = message.struct_value.fields["value"]
            message.CopyFrom(type(message).FromString(value.SerializeToString()))
