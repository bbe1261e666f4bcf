"""How three systems derive rows from changes, each with its own ordering."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain

from headgate.cdc.order.orders import order
from tests.cdc.changes import Case, Change, Rows, tables

Rank = tuple[int | str, ...]


def ours(case: Case) -> Rows:
    """Merge by complete orders, with tombstones for deleted rows."""
    arriving = list(chain.from_iterable(case.batches))
    metadata, _ = tables(arriving)
    newest: dict[int, tuple[str, Change]] = {}
    for text, change in zip(
        order(metadata, case.lineages).texts.to_pylist(), arriving, strict=True
    ):
        if change.key not in newest or text > newest[change.key][0]:
            newest[change.key] = text, change
    return {key: change.columns for key, (_, change) in newest.items() if not change.is_deleted}


def badal(case: Case) -> Rows:
    """badal-io/datastream-deltalake-connector: time, log file as text, log position in a batch;
    between batches only the time; what is gone is forgotten."""
    return _merge_each(
        case.batches,
        within=lambda change: (change.micros, change.log_file, change.log_position),
        between=lambda change: (change.micros,),
    )


def google_bigquery(case: Case, batches_kept: int = 2) -> Rows:
    """Google's Datastream to BigQuery template: time in seconds, log file as text, log position;
    what is gone is remembered only as long as changes are kept in the staging table."""
    staged = [
        list(chain.from_iterable(case.batches[max(0, end - batches_kept) : end]))
        for end in range(1, len(case.batches) + 1)
    ]

    def rank(change: Change) -> Rank:
        return change.micros // 1_000_000, change.log_file, change.log_position

    return _merge_each(
        staged, within=lambda change: (*rank(change), not change.is_deleted), between=rank
    )


def _merge_each(
    batches: Sequence[Sequence[Change]],
    within: Callable[[Change], Rank],
    between: Callable[[Change], Rank],
) -> Rows:
    """Run a MERGE per batch with the last change of each key, deleting rows for good."""
    target: dict[int, Change] = {}
    for batch in batches:
        last: dict[int, Change] = {}
        for change in batch:
            if change.key not in last or within(change) > within(last[change.key]):
                last[change.key] = change
        for key, change in last.items():
            if key in target and between(target[key]) > between(change):
                continue
            if change.is_deleted:
                target.pop(key, None)
            else:
                target[key] = change
    return {key: change.columns for key, change in target.items()}
