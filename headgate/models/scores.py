"""The table of predictions: a row for each key whose prediction or state has changed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any

import pyarrow as pa

from headgate.lake.commit import Commit, Committer, Mark
from headgate.lake.ledger import compact_in_time
from headgate.lake.parquet import stage_rows
from headgate.models.state import Key, RecentRows

FALLBACK = "fallback"
"""The `model` of a value that is not a model's."""

_VALUES = pa.schema(
    [
        ("prediction", pa.float64()),
        ("low", pa.float64()),
        ("high", pa.float64()),
        ("at", pa.timestamp("us", "UTC")),
        ("model", pa.string()),
        ("prediction_id", pa.string()),
        ("predicted_at", pa.timestamp("us", "UTC")),
    ]
)


_KEPT = timedelta(hours=1)
"""For how long a push query can be continued."""


@dataclass(frozen=True)
class Scored:
    """One prediction, as it is written to the table."""

    key: object
    prediction: float
    low: float | None
    high: float | None
    at: datetime
    """The newest event time that it is based on."""
    model: str
    prediction_id: str
    predicted_at: datetime

    @property
    def named(self) -> dict[str, object]:
        """The columns besides the key."""
        return {name: value for name, value in vars(self).items() if name != "key"}


def prediction_schema(key: str, kind: pa.DataType) -> pa.Schema:
    """Return the columns of a table of predictions."""
    return pa.schema([pa.field(key, kind), *_VALUES])


def prediction_id(name: str, key: Key, at: int, state: Mapping[str, Any]) -> str:
    """Return what identifies a prediction: the same key, time and features give the same id."""
    text = json.dumps([name, key, at, [*state.items()]], default=str, ensure_ascii=False)
    return sha256(text.encode()).hexdigest()[:32]


class PredictionTable:
    """Writes predictions, each commit with a mark that no other run may have passed."""

    def __init__(
        self, committer: Committer, table: str, app: str, key: str, window: timedelta
    ) -> None:
        self.table, self.key = table, key
        self._committer, self._app, self._window = committer, app, window
        self._marked: int | None = None

    def recent(self) -> RecentRows:
        """Return the predictions of the window."""
        columns = [self.key, *_VALUES.names]
        return RecentRows(self._committer.lake, self.table, ["at"], self._window, lambda _: columns)

    def read_last(self) -> dict[Key, Scored]:
        """Return the newest prediction of each key."""
        known = self._committer.state(self.table, self._app)
        self._marked = None if known is None else known.marked
        if known is None:
            return {}
        rows = self.recent().update().rename_columns(["key", *_VALUES.names])
        by_time = rows.sort_by([("at", "ascending"), ("predicted_at", "ascending")])
        return {row["key"]: Scored(**row) for row in by_time.to_pylist()}

    def commit(self, fresh: Sequence[Scored], kind: pa.DataType) -> int:
        """Write predictions in one commit; `kind` is the type of the key."""
        schema = prediction_schema(self.key, kind)
        rows = pa.Table.from_pylist([{self.key: row.key, **row.named} for row in fresh], schema)
        mark = Mark(self._app, 0 if self._marked is None else self._marked + 1)
        version = self._committer.commit(
            Commit(
                self.table,
                schema,
                (stage_rows(self._committer.lake, self.table, rows),),
                (mark,),
                required_marks={self._app: self._marked},
                description="Predictions",
            )
        )
        self._marked = mark.version
        compact_in_time(self._committer, self.table, mark.version, keep=_KEPT)
        return version
