"""Positions in a source, and what they count in."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.errors import CheckpointError, SourceError
from headgate.lake.ledger import Progress
from headgate.sources.checkpoint import CheckpointState, Resume, resume
from headgate.sources.identity import in_the_same, replaced, source_replaced
from headgate.sources.kafka import offsets_from

GONE = source_replaced(["games"], {"games": "a"}, {"games": "b"})
PROGRESS = Progress("mine", 0, 3, {"games": {"0": 40}}, (), {"games": "a"})
SAME = CheckpointState("mine", 3, 3)
IDS = st.dictionaries(st.sampled_from("abc"), st.sampled_from("xyz"))


def test_error_says_what_was_replaced_and_how_to_go_on() -> None:
    assert GONE.code == "data-lost"
    assert "games was deleted and created again" in GONE.message
    assert "--from-ledger" in str(GONE.hint)
    two = source_replaced(["a", "b"], {"a": "1", "b": "2"}, {"a": "3", "b": "4"})
    assert "a (and 1 more) was deleted" in two.message


@pytest.mark.parametrize(
    ("progress", "checkpoint", "staged"),
    [
        (None, CheckpointState(None, None, None), None),
        (None, CheckpointState("mine", 0, None), None),
        (replace(PROGRESS, landed=None, ended_at=None), CheckpointState("mine", 0, None), 0),
        (PROGRESS, SAME, None),
        (PROGRESS, CheckpointState("mine", 4, 3), 4),
    ],
    ids=["first run", "begun", "first batch staged", "landed", "batch staged"],
)
def test_replaced_source_is_refused_unless_the_ledger_decides(
    progress: Progress | None, checkpoint: CheckpointState, staged: int | None
) -> None:
    with pytest.raises(SourceError) as refused:
        resume(progress, staged, checkpoint, (), from_ledger=False, replaced=GONE)
    assert refused.value is GONE
    found = resume(progress, staged, checkpoint, (), from_ledger=True, replaced=GONE)
    newest = staged if staged is not None else progress.landed if progress else None
    expected = Resume(0, new_checkpoint=True)
    if newest is not None:
        expected = Resume(newest + 1, new_checkpoint=True, from_ledger=True)
    assert found == expected


def test_checkpoint_that_does_not_match_is_named_first() -> None:
    with pytest.raises(CheckpointError) as refused:
        resume(PROGRESS, None, CheckpointState("mine", 1, 1), (), False, GONE)
    assert refused.value.code == "checkpoint-reset"


@given(IDS, IDS)
def test_what_has_no_id_is_taken_for_the_same(
    known: dict[str, str], present: dict[str, str]
) -> None:
    gone = replaced(known, present)
    assert gone == [name for name in sorted(known) if present.get(name, known[name]) != known[name]]
    position = {name: {"0": 1} for name in "abc"}
    kept = in_the_same(position, known, present)
    assert kept == {name: at for name, at in position.items() if name not in gone}
    assert in_the_same(None, known, present) is None


def test_every_partition_has_an_offset_to_continue_from() -> None:
    ended = {"a": {"0": 5, "1": 6}, "dropped": {"0": 1}}
    assert offsets_from(ended, {"a": 3, "new": 2}) == {
        "a": {"0": 5, "1": 6, "2": -2},
        "new": {"0": -2, "1": -2},
    }
