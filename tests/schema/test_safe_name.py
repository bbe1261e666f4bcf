from __future__ import annotations

import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headgate.schema.names import MAX_ROUTE_LENGTH, derived_name, is_nameable, safe_name

_SAFE = re.compile(r"[a-z0-9][a-z0-9_]*")
_LONGEST = 63

anything = st.text(st.characters(exclude_categories=()), max_size=80)
valid_names = st.from_regex(r"[a-z0-9][a-z0-9_]{0,20}", fullmatch=True)


@given(anything)
@settings(deadline=None)
@example("../../etc/passwd")
@example("`; drop table x")
@example("a\0b")
@example("\ud800")
@example("x" * 300)
@example("_hidden")
@example(".")
@example("\u0130\u0131\u017f\u212a")
@example("a\n")
def test_name_is_safe_and_of_bounded_length(value: str) -> None:
    name = safe_name(value)
    assert _SAFE.fullmatch(name)
    assert len(name) <= _LONGEST
    assert name == safe_name(value)


@given(st.lists(anything | valid_names | valid_names.map(derived_name), unique=True, max_size=20))
@settings(deadline=None)
def test_different_values_have_different_names(values: list[str]) -> None:
    names = [safe_name(value) for value in values]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    "values",
    [
        ("chess", "Chess", "CHESS"),
        ("a.b", "a/b", "a b", "a_b", "a-b"),
        ("é", "e", "e\u0301"),
        ("chess", "\u0441hess"),  # the second begins with a Cyrillic letter
        ("a", "a\0", "a\u200b", " a"),
        ("x" * 299 + "1", "x" * 299 + "2"),
        ("ﬁ", "fi"),
        ("..", "../..", "/", "\\"),
    ],
    ids=lambda values: ascii(values[0][:8]),
)
def test_similar_values_do_not_share_a_name(values: tuple[str, ...]) -> None:
    assert len({safe_name(value) for value in values}) == len(values)


@given(anything)
@settings(deadline=None)
def test_derived_name_as_a_value_gets_another_name(value: str) -> None:
    derived = derived_name(value)
    assert safe_name(derived) != derived
    assert safe_name(derived) != safe_name(value)


@pytest.mark.parametrize("value", ["chess", "go_2", "7_wonders", "x" * 63])
def test_valid_value_keeps_its_name(value: str) -> None:
    assert safe_name(value) == value


def test_derived_name_can_be_read() -> None:
    assert safe_name("Chess Club/2026").startswith("chess_club_2026__")
    assert safe_name("Café Olé").startswith("cafe_ole__")


def test_name_stays_the_same_in_every_release() -> None:
    assert safe_name("Chess") == "chess__ygvn5asts6"
    assert safe_name("../../etc/passwd") == "etc_passwd__g5knnsz2hd"
    assert safe_name("\ud800") == "route__sgtidomykv"


def test_reserved_name_is_not_used() -> None:
    assert safe_name("ledger", {"ledger"}).startswith("ledger__")
    assert safe_name("ledgers", {"ledger"}) == "ledgers"


@pytest.mark.parametrize("route", [None, "", " ", "../..", "___", "\0", "\ud800", "`", "x" * 513])
def test_route_without_a_letter_or_too_long_is_not_nameable(route: str | None) -> None:
    assert not is_nameable(route)


@pytest.mark.parametrize("route", ["chess", "../a", "チェス", "7", "x" * MAX_ROUTE_LENGTH])
def test_route_with_a_letter_or_digit_is_nameable(route: str) -> None:
    assert is_nameable(route)
