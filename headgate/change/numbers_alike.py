"""Numbers of files without a schema, in the type that the rest of their column has.

JSON writes 10 and 10.5 in the same column. Where a number is the same in either type, it is no
change of the column's type.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc


def numbers_alike(rows: pa.Table, others: Iterable[pa.Schema]) -> pa.Table:
    """The rows with whole numbers as floating ones, or the other way round, where others have
    them so and no number becomes another one."""
    kinds: dict[str, pa.DataType] = {}
    for schema in others:
        for field in schema:
            kinds.setdefault(field.name, field.type)
    for at, field in enumerate(rows.schema):
        wanted = kinds.get(field.name)
        if {field.type, wanted} == {pa.int64(), pa.float64()}:
            column = _exactly(rows.column(at), wanted)
            if column is not None:
                rows = rows.set_column(at, field.with_type(wanted), column)
    return rows


def _exactly(column: pa.ChunkedArray, wanted: pa.DataType) -> pa.ChunkedArray | None:
    try:
        cast = column.cast(wanted)
        back = cast.cast(column.type)
    except pa.ArrowInvalid:
        return None
    same = pc.all(pc.equal(back, column)).as_py()
    return cast if same is not False else None
