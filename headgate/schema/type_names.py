"""Types in words: as Delta's users write them, and as parts of a column's name."""

from __future__ import annotations

import pyarrow as pa

from headgate.route.safe_name import digest

_WORDS = {
    pa.int8(): "byte",
    pa.int16(): "short",
    pa.int32(): "int",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.bool_(): "boolean",
    pa.string(): "string",
    pa.binary(): "binary",
    pa.date32(): "date",
}


def type_name(kind: pa.DataType) -> str:
    """The type as Delta's users write it."""
    if kind in _WORDS:
        return _WORDS[kind]
    if pa.types.is_timestamp(kind):
        return "timestamp" if kind.tz else "timestamp_ntz"
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_struct(kind):
        return f"struct<{','.join(f'{f.name}:{type_name(f.type)}' for f in kind)}>"
    if pa.types.is_map(kind):
        return f"map<{type_name(kind.key_type)},{type_name(kind.item_type)}>"
    if pa.types.is_list(kind):
        return f"array<{type_name(kind.value_type)}>"
    return str(kind)


def type_word(kind: pa.DataType) -> str:
    """The type as part of a column's name."""
    name = type_name(kind)
    return name if name.isidentifier() else f"{name.split('<')[0].split('(')[0]}_{digest(name)}"
