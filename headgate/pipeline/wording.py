"""How keys and values are shown in messages: short, and never with a password in them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import date
from difflib import get_close_matches

_CREDENTIALS = re.compile(r"[^\s/@]*:\S*@")
_LONGEST = 60


def shown(value: object) -> str:
    """A value as a message may repeat it."""
    match value:
        case None:
            return "nothing"
        case "":
            return "empty text"
        case bool():
            return f"`{str(value).lower()}`"
        case Mapping():
            return "a mapping"
        case list() | tuple():
            return "a list"
        case int() | float() | date():
            return f"`{value}`"
        case str():
            text = _CREDENTIALS.sub("***@", value)
            text = "".join(
                letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text
            )
            return f"`{text if len(text) <= _LONGEST else text[:_LONGEST] + '…'}`"
        case _:
            return f"a {type(value).__name__}"


def listed(words: Iterable[object]) -> str:
    return ", ".join(f"`{word}`" for word in words)


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that a mistyped one was meant to be, if it is near enough."""
    by_lower_case = {each.lower(): each for each in known}
    near = get_close_matches(word.lower(), by_lower_case, n=1, cutoff=0.7)
    return by_lower_case[near[0]] if near else None


def did_you_mean(word: str, known: Iterable[str]) -> str | None:
    meant = nearest(word, known)
    return f"did you mean `{meant}`?" if meant else None
