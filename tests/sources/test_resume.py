from __future__ import annotations

from dataclasses import replace

import pytest

from headgate.errors import CheckpointError
from headgate.lake.ledger import Progress
from headgate.sources.checkpoint import CheckpointState, Resume, resume

EMPTY = CheckpointState(None, None, None)
MINE = CheckpointState("mine", 4, 3)
PROGRESS = Progress(
    query_id="mine",
    first_version=0,
    landed=3,
    ended_at={"games": 40},
    pending=(),
)


def refusal(
    progress: Progress | None,
    checkpoint: CheckpointState,
    tables: tuple[str, ...] = (),
    from_ledger: bool = False,
) -> CheckpointError:
    with pytest.raises(CheckpointError) as caught:
        resume(progress, None, checkpoint, tables, from_ledger)
    assert caught.value.hint
    return caught.value


def test_first_run_starts_at_the_beginning() -> None:
    assert resume(None, None, EMPTY, (), from_ledger=False) == Resume(0, new_checkpoint=True)


def test_run_that_crashed_before_the_ledgers_first_row_starts_again() -> None:
    begun = CheckpointState("mine", 0, None)
    assert resume(None, None, begun, (), from_ledger=False) == Resume(0, new_checkpoint=True)


def test_run_that_crashed_after_the_ledgers_first_row_continues() -> None:
    started = replace(PROGRESS, landed=None, ended_at=None)
    begun = CheckpointState("mine", 0, None)
    assert resume(started, None, begun, (), from_ledger=False) == Resume(0, new_checkpoint=False)


def test_checkpoint_of_a_lake_without_ledger_is_foreign() -> None:
    assert refusal(None, MINE).code == "checkpoint-foreign"


def test_tables_without_a_ledger_are_not_touched() -> None:
    error = refusal(None, EMPTY, ("silver_chess", "silver_go"))
    assert error.code == "lake-without-ledger"
    assert "silver_chess" in error.message


@pytest.mark.parametrize("from_ledger", [False, True])
def test_same_checkpoint_continues(from_ledger: bool) -> None:
    assert resume(PROGRESS, None, MINE, ("silver_chess",), from_ledger) == Resume(
        0, new_checkpoint=False
    )


@pytest.mark.parametrize(
    "checkpoint",
    [CheckpointState("mine", 3, 3), CheckpointState("mine", 3, 2), CheckpointState("mine", 4, 3)],
    ids=["all committed", "crashed before Spark's commit", "next batch begun"],
)
def test_same_checkpoint_continues_wherever_it_stopped(checkpoint: CheckpointState) -> None:
    assert resume(PROGRESS, None, checkpoint, (), from_ledger=False) == Resume(
        0, new_checkpoint=False
    )


def test_batches_are_counted_from_the_checkpoints_first_version() -> None:
    later = replace(PROGRESS, first_version=10, landed=12)
    checkpoint = CheckpointState("mine", 2, 2)
    assert resume(later, None, checkpoint, (), from_ledger=False) == Resume(
        10, new_checkpoint=False
    )
    error = refusal(later, CheckpointState("mine", 1, 1))
    assert "batch 2" in error.message


FROM_LEDGER = Resume(4, new_checkpoint=True, from_ledger=True)


def test_checkpoint_that_was_rolled_back_is_refused_unless_the_ledger_decides() -> None:
    rolled_back = CheckpointState("mine", 1, 1)
    error = refusal(PROGRESS, rolled_back)
    assert error.code == "checkpoint-reset"
    assert "rolled back" in error.message
    assert resume(PROGRESS, None, rolled_back, (), from_ledger=True) == FROM_LEDGER


@pytest.mark.parametrize(
    "checkpoint",
    [CheckpointState("mine", 4, 4), CheckpointState("mine", 9, 8), CheckpointState("mine", 9, 3)],
    ids=["one batch more", "many more", "begun twice"],
)
def test_lake_that_was_put_back_is_refused_unless_the_ledger_decides(
    checkpoint: CheckpointState,
) -> None:
    error = refusal(PROGRESS, checkpoint)
    assert error.code == "lake-behind"
    assert "--from-ledger" in str(error.hint)
    assert resume(PROGRESS, None, checkpoint, (), from_ledger=True) == FROM_LEDGER


def test_batch_that_was_staged_with_another_checkpoint_lands_first() -> None:
    other = replace(MINE, has_staged_batch=False)
    assert refusal(PROGRESS, other).code == "checkpoint-foreign"
    again = resume(PROGRESS, 4, other, (), from_ledger=True)
    assert again == Resume(5, new_checkpoint=True, from_ledger=True)


def test_lake_that_was_put_back_to_before_its_first_batch_is_refused() -> None:
    started = replace(PROGRESS, landed=None, ended_at=None)
    assert refusal(started, CheckpointState("mine", 1, 0)).code == "lake-behind"
    again = resume(started, None, CheckpointState("mine", 1, 0), (), from_ledger=True)
    assert again == Resume(0, new_checkpoint=True)


def test_empty_checkpoint_is_refused_with_a_hint() -> None:
    error = refusal(PROGRESS, EMPTY)
    assert error.code == "checkpoint-reset"
    assert "4 batches" in error.message
    assert "--from-ledger" in str(error.hint)


def test_from_ledger_continues_where_the_ledger_ends() -> None:
    assert resume(PROGRESS, None, EMPTY, (), from_ledger=True) == FROM_LEDGER
    begun = CheckpointState("new", 0, None)
    assert resume(PROGRESS, None, begun, (), from_ledger=True) == FROM_LEDGER


def test_from_ledger_counts_a_batch_that_is_staged() -> None:
    assert resume(PROGRESS, 4, EMPTY, (), from_ledger=True) == Resume(
        5, new_checkpoint=True, from_ledger=True
    )
    with pytest.raises(CheckpointError, match="5 batches"):
        resume(PROGRESS, 4, EMPTY, (), from_ledger=False)


@pytest.mark.parametrize("from_ledger", [False, True])
def test_checkpoint_of_another_stream_is_foreign(from_ledger: bool) -> None:
    error = refusal(PROGRESS, CheckpointState("other", 8, 8), from_ledger=from_ledger)
    assert error.code == "checkpoint-foreign"


def test_other_checkpoint_is_accepted_before_the_first_batch() -> None:
    started = replace(PROGRESS, landed=None, ended_at=None)
    assert resume(started, None, EMPTY, (), from_ledger=False) == Resume(0, new_checkpoint=True)
