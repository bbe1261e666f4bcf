"""Counts, durations, rates and sizes as text."""

from __future__ import annotations

_SIZES = ("kB", "MB", "GB", "TB")


def number(amount: float) -> str:
    return f"{amount:,.0f}"


def counted(amount: int, thing: str, things: str | None = None) -> str:
    """`1 table`, `2 tables`."""
    return f"{number(amount)} {thing if amount == 1 else things or f'{thing}s'}"


def duration(seconds: float) -> str:
    """`0.42 s`, `12 s`, `3 min 20 s`, `2 h 5 min`."""
    if seconds < 10:
        return f"{seconds:.2f} s" if seconds < 1 else f"{seconds:.1f} s"
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def rate(records: int, seconds: float) -> str:
    return f"{number(records / seconds)} records/s" if seconds > 0 else "-"


def size(amount: int) -> str:
    """`512 bytes`, `4.2 MB`."""
    if amount < 1000:
        return counted(amount, "byte")
    power = min((len(str(amount)) - 1) // 3, len(_SIZES))
    return f"{amount / 1000**power:.1f} {_SIZES[power - 1]}"
