"""Regular expressions of rules: from the syntax of Java, which Spark has, to that of Rust.

Rust has no lookaround and no backreferences. It takes `\\d`, `\\w`, `\\s` and `\\b` for all of
Unicode, and gives other meanings to some characters.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

_CLASSES = {"d": "0-9", "w": "0-9A-Za-z_", "s": r" \t\n\x0B\x0C\r"}
_KEPT_ESCAPES = "tnrfaAz"
_GROUP = re.compile(r"\?(?:P?<[A-Za-z][A-Za-z0-9_]*>|[ims]*(?:-[ims]+)?:)")
_FLAGS = re.compile(r"\?[ims]+(?:-[ims]+)?\)|\?-[ims]+\)")
_REPETITION = re.compile(r"[*+?]|\{[0-9]+(?:,[0-9]*)?\}")
_CODE = re.compile(r"x[0-9A-Fa-f]{2}|x\{[0-9A-Fa-f]{1,6}\}|u[0-9A-Fa-f]{4}")
_PROPERTY = re.compile(r"[pP](?:[A-Z]|\{\^?[A-Za-z_]+\})")
_ASCII_NAMES = "Lower Upper Alpha Digit Alnum Punct Graph Print Blank Cntrl XDigit Space"
_ASCII_PROPERTIES = frozenset(_ASCII_NAMES.split())
"""Names that mean ASCII alone in Java."""


class UnsupportedPattern(ValueError):
    """A part of a pattern that cannot be matched; the text names it."""


@lru_cache(maxsize=1024)
def rust_pattern(pattern: str) -> str:
    """Return a pattern that matches the same texts in Rust; raise `UnsupportedPattern` if none."""
    return "".join(_PatternReader(pattern).read())


class _PatternReader:
    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._at = 0
        self._groups = 0

    def read(self) -> Iterator[str]:
        repeatable = False
        while self._at < len(self._pattern):
            if found := _REPETITION.match(self._pattern, self._at):
                if not repeatable:
                    raise UnsupportedPattern(f"`{found[0]}` repeats nothing")
                yield self._repetition(found[0])
                repeatable = False
                continue
            character = self._next()
            repeatable = character not in "(|^"
            match character:
                case "(":
                    yield self._group()
                case ")":
                    self._groups -= 1
                    if self._groups < 0:
                        raise UnsupportedPattern("`)` closes nothing")
                    yield ")"
                case "[":
                    yield self._class()
                case "\\":
                    yield self._escape(inside=False)
                case "{" | "}" | "]":
                    yield f"\\{character}"
                case _:
                    yield character
        if self._groups:
            raise UnsupportedPattern("`(` is never closed")

    def _next(self) -> str:
        if self._at >= len(self._pattern):
            raise UnsupportedPattern("it ends too early")
        self._at += 1
        return self._pattern[self._at - 1]

    def _take(self, expected: re.Pattern[str]) -> str | None:
        found = expected.match(self._pattern, self._at)
        if found is None:
            return None
        self._at = found.end()
        return found[0]

    def _repetition(self, text: str) -> str:
        self._at += len(text)
        after = self._pattern[self._at : self._at + 1]
        if after == "+":
            raise UnsupportedPattern(f"`{text}+` is possessive")
        if after == "?":
            self._at += 1
            return f"{text}?"
        return text

    def _group(self) -> str:
        if not self._pattern.startswith("?", self._at):
            self._groups += 1
            return "("
        if flags := self._take(_FLAGS):
            return f"({flags}"
        if group := self._take(_GROUP):
            self._groups += 1
            return f"({group}"
        shown = self._pattern[self._at : self._at + 3]
        raise UnsupportedPattern(f"`({shown}` is not supported")

    def _class(self) -> str:
        parts = ["["]
        if self._pattern.startswith("^", self._at):
            parts.append(self._next())
        if self._pattern.startswith("]", self._at):
            self._next()
            parts.append("\\]")
        while (character := self._next()) != "]":
            match character:
                case "[":
                    named = re.compile(r":\^?[a-z]+:\]")
                    posix = self._take(named)
                    parts.append(f"[{posix}" if posix else self._class())
                case "\\":
                    parts.append(self._escape(inside=True))
                case "~":
                    parts.append("\\~")
                case "-" if self._pattern.startswith("-", self._at):
                    parts.append("\\-")
                case _:
                    parts.append(character)
        return "".join([*parts, "]"])

    def _escape(self, inside: bool) -> str:
        if code := self._take(_CODE):
            return f"\\{code}"
        if named := self._take(_PROPERTY):
            return _property(named)
        character = self._next()
        lower = character.lower()
        if lower in _CLASSES:
            members = _CLASSES[lower]
            if character == lower:
                return members if inside else f"[{members}]"
            return f"[^{members}]"
        if lower == "b" and not inside:
            return rf"(?-u:\{character})"
        if character == "Q":
            return self._quoted()
        if character in _KEPT_ESCAPES and not (inside and character in "Az"):
            return f"\\{character}"
        if character.isalnum() and character.isascii():
            raise UnsupportedPattern(f"`\\{character}` is not supported")
        return _literal(character)

    def _quoted(self) -> str:
        end = self._pattern.find("\\E", self._at)
        text = self._pattern[self._at : end if end >= 0 else None]
        self._at = end + 2 if end >= 0 else len(self._pattern)
        return "".join(map(_literal, text))


def _property(text: str) -> str:
    name = text[1:].strip("{}")
    if name not in _ASCII_PROPERTIES:
        return f"\\{text}"
    return f"[{'^' if text[0] == 'P' else ''}[:{name.lower()}:]]"


def _literal(character: str) -> str:
    """Rust takes `\\<` and `\\>` for the ends of words."""
    special = character.isascii() and not character.isalnum() and character not in "<>_ \t\n\r"
    return f"\\{character}" if special and character.isprintable() else character
