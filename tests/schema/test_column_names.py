from __future__ import annotations

import re

from hypothesis import example, given, settings
from hypothesis import strategies as st

from headgate.schema.names import column_names, column_twin
from headgate.schema.origin import ORIGIN_COLUMNS

_SAFE = re.compile(r"[A-Za-z_0-9][A-Za-z0-9_]*")

words = st.text("abAB_", min_size=1, max_size=3)
names = st.lists(words | words.map(column_twin) | st.text(max_size=5), unique=True, max_size=12)


def test_valid_names_are_kept() -> None:
    assert column_names(["user_id", "userName", "_at", "Score2"]) == [
        "user_id",
        "userName",
        "_at",
        "Score2",
    ]


def test_first_of_two_case_twins_keeps_its_name() -> None:
    first, second = column_names(["userId", "userid"])
    assert first == "userId"
    assert second == column_twin("userid")
    assert second.startswith("userid__")


def test_name_of_a_metadata_column_is_not_taken() -> None:
    topic, offset, mine = column_names(["_topic", "_OFFSET", "_mine"], ORIGIN_COLUMNS)
    assert topic == column_twin("_topic")
    assert offset == column_twin("_OFFSET")
    assert mine == "_mine"


@given(names)
@settings(deadline=None)
@example(["x", column_twin("X"), "X"])
@example(["", " ", "a b", "a.b", "a`b", "a\nb", "\ud800"])
@example(["a" * 1000, "a" * 999])
def test_no_two_columns_share_a_name_in_any_case(fields: list[str]) -> None:
    columns = column_names(fields, ORIGIN_COLUMNS)
    lowered = [column.lower() for column in columns]
    assert len(columns) == len(fields)
    assert len(set(lowered)) == len(lowered)
    assert not set(lowered) & ORIGIN_COLUMNS
    assert all(_SAFE.fullmatch(column) for column in columns)
    assert columns == column_names(fields, ORIGIN_COLUMNS)
