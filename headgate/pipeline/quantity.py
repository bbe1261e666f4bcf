"""A number and its unit, as in `16 MB` or `2 minutes`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction

_NUMBER_AND_UNIT = re.compile(r"\s*([0-9]{1,19}(?:\.[0-9]{1,9})?)\s*([A-Za-z]*)\s*", re.ASCII)


def count_units(text: str, units: Mapping[str, int]) -> int | None:
    """How many of the smallest unit the text means; None when it does not mean a whole number."""
    parts = _NUMBER_AND_UNIT.fullmatch(text)
    if parts is None or parts[2].lower() not in units:
        return None
    count = Fraction(parts[1]) * units[parts[2].lower()]
    return count.numerator if count.denominator == 1 else None
