"""One thing that `headgate doctor` looked at, and what to do about it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from headgate.errors import HeadgateError


class State(StrEnum):
    """How a check came out."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True)
class Check:
    """What was looked at, how it is, and how to mend it."""

    name: str
    state: State
    detail: str
    fix: str | None = None


def ok(name: str, detail: str) -> Check:
    return Check(name, State.OK, detail)


def warn(name: str, detail: str, fix: str | None = None) -> Check:
    return Check(name, State.WARN, detail, fix)


def fail(name: str, detail: str, fix: str | None = None) -> Check:
    return Check(name, State.FAIL, detail, fix)


def tried(name: str, look: Callable[[], Check]) -> Check:
    """A check that cannot be made is one that failed; the others still have their turn."""
    try:
        return look()
    except HeadgateError as error:
        return fail(name, error.message, error.hint)
    except Exception as error:
        return fail(name, f"{type(error).__name__}: {error}".splitlines()[0])
