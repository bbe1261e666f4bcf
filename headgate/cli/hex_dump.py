"""Bytes as people who debug protocols read them."""

from __future__ import annotations

from collections.abc import Iterator

_WIDTH = 16
_MOST = 4096


def hex_dump(value: bytes, most: int = _MOST) -> Iterator[str]:
    """Offset, sixteen bytes and their letters a line."""
    for start in range(0, min(len(value), most), _WIDTH):
        row = value[start : start + _WIDTH]
        pairs = row.hex(" ")
        # A gap in the middle helps the eye to count.
        left, right = pairs[: 3 * 8 - 1], pairs[3 * 8 :]
        letters = "".join(chr(each) if 0x20 <= each < 0x7F else "." for each in row)
        yield f"{start:08x}  {left:<23}  {right:<23}  {letters}"
    if len(value) > most:
        yield f"… and {len(value) - most:,} bytes more"
