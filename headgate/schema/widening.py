"""Which types hold every value of which others, as the same kind of thing."""

from __future__ import annotations

import pyarrow as pa

_WHOLE = [pa.int8(), pa.int16(), pa.int32(), pa.int64()]
_DIGITS = dict(zip(_WHOLE, (3, 5, 10, 19), strict=True))


def widens(smaller: pa.DataType, larger: pa.DataType) -> bool:
    """Whether every value of the one is a value of the other, with nothing to round.

    Whole numbers do not become floating ones, though a double could hold an int: a column of
    identifiers would turn into 1.0, 2.0, … because of one schema.
    """
    if smaller in _WHOLE and larger in _WHOLE:
        return _WHOLE.index(smaller) < _WHOLE.index(larger)
    if pa.types.is_float32(smaller) and pa.types.is_float64(larger):
        return True
    if not pa.types.is_decimal(larger):
        return False
    digits = larger.precision - larger.scale
    if smaller in _DIGITS:
        return bool(digits >= _DIGITS[smaller])
    return (
        pa.types.is_decimal(smaller)
        and not smaller.equals(larger)
        and bool(larger.scale >= smaller.scale)
        and bool(digits >= smaller.precision - smaller.scale)
    )
