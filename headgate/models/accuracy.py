"""How far recent predictions were from the truth, and when a model has to be trained again."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import Any

import pyarrow as pa

from headgate.config import Train
from headgate.engine.events import Listener, PredictionFailed, TrainingStarted
from headgate.errors import LandingError, listed
from headgate.lake.duck import Sql
from headgate.lake.ledger_entries import AccuracyEntry, Entry, TrainingEntry
from headgate.lake.query import quoted, quoted_name
from headgate.models.scores import PredictionTable
from headgate.models.serving import ServingModel
from headgate.models.state import ChooseColumns, RecentRows, WindowState, from_micros
from headgate.sql.query import over_tables, parse_query

JUDGE_SECONDS = 60.0
_MAX_TRUTHS = 500
_MIN_TRUTHS = 50
_DRIFT = 1.5
"""How much larger than in training the error may be."""
_BETWEEN = timedelta(hours=1)
"""Minimum time between two trainings because of drift."""
_LABEL_COLUMNS = ("at", "known_at", "label")


@dataclass(frozen=True)
class Accuracy:
    """The error of the last predictions whose truth is known."""

    model: str
    truths: int
    mae: float
    trained_mae: float | None

    @property
    def ratio(self) -> float | None:
        """How much larger the error is than in training."""
        return self.mae / self.trained_mae if self.trained_mae else None

    @property
    def has_drifted(self) -> bool:
        return self.truths >= _MIN_TRUTHS and (self.ratio or 0) > _DRIFT


class LiveAccuracy:
    """Compares predictions with what turned out to be true, as it becomes known."""

    def __init__(self, label: str, key: str, every: float = JUDGE_SECONDS) -> None:
        self.query = parse_query(label)
        self._key = key
        self._every = every
        self._measured = float("-inf")
        self._known_until: datetime | None = None
        self._model: str | None = None
        self._errors: deque[float] = deque(maxlen=_MAX_TRUTHS)

    @property
    def tables(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(source.table for source in self.query.sources))

    @property
    def is_due(self) -> bool:
        return monotonic() - self._measured >= self._every

    def measure(
        self,
        sql: Sql,
        rows: Mapping[str, pa.Table],
        predictions: pa.Table,
        newest: int,
        model: str,
        trained_mae: float | None,
    ) -> Accuracy | None:
        """Add truths that are known since the last time; return the error if there are some.

        `rows` are those of the window, by the names that the query calls their tables.
        """
        self._measured = monotonic()
        if model != self._model:
            self._model, self._known_until = model, None
            self._errors.clear()
        until = from_micros(newest)
        found = self._compared(sql, rows, predictions, until, model)
        self._known_until = until
        self._errors.extend(found)
        if not found:
            return None
        count = len(self._errors)
        return Accuracy(model, count, sum(self._errors) / count, trained_mae)

    def _compared(
        self,
        sql: Sql,
        rows: Mapping[str, pa.Table],
        predictions: pa.Table,
        until: datetime,
        model: str,
    ) -> list[float]:
        views = {name.lower(): f"t{at}" for at, name in enumerate(rows)}
        given = dict(zip(views.values(), rows.values(), strict=True))
        self._check_columns(sql, views, given)
        since = "" if self._known_until is None else f"AND known_at > {_time(self._known_until)}"
        key = quoted_name(self._key)
        found = sql.table(
            f"""
            WITH truths AS (
                SELECT {key}, "at", known_at, label FROM ({over_tables(self.query, views)})
                WHERE label IS NOT NULL AND known_at <= {_time(until)} {since}
            )
            SELECT abs(p.prediction - t.label) AS error
            FROM truths AS t ASOF JOIN predictions AS p ON t.{key} = p.{key} AND t."at" >= p."at"
            WHERE p.model = {quoted(model)} ORDER BY t.known_at
            """,
            **given,
            predictions=predictions,
        )
        errors: list[float] = found["error"].cast(pa.float64()).to_pylist()
        return errors

    def _check_columns(
        self, sql: Sql, views: Mapping[str, str], given: Mapping[str, pa.Table]
    ) -> None:
        names = sql.table(f"SELECT * FROM ({over_tables(self.query, views)}) LIMIT 0", **given)
        missing = [name for name in (self._key, *_LABEL_COLUMNS) if name not in names.column_names]
        if missing:
            raise LandingError("bad-query", f"`label` does not return {listed(missing)}")


def _time(time: datetime) -> str:
    return f"TIMESTAMPTZ {quoted(time.isoformat(sep=' '))}"


@dataclass
class Retraining:
    """Trains the model of a prediction in a process of its own, on schedule or after drift."""

    file: str | None
    """The pipeline file; a pipeline that was built in Python is not trained by its runs."""
    name: str
    table: str
    train: Train
    log: str
    """File that gets the output of a training."""
    listener: Listener
    last: datetime | None = None
    """When it was trained last by a run."""
    start: Callable[..., Any] = subprocess.Popen
    _began: datetime = field(default_factory=lambda: datetime.now(UTC))
    _process: Any = None

    def follow(self, accuracy: Accuracy | None) -> Sequence[TrainingEntry]:
        """Start a training if one is due; return the outcome of one that has ended."""
        if self._process is not None:
            return self._outcome()
        why = self._due(accuracy, datetime.now(UTC))
        if why is not None and self.file is not None:
            self._start(self.file, why)
        return ()

    def _due(self, accuracy: Accuracy | None, now: datetime) -> str | None:
        if self.train.every is not None and now - (self.last or self._began) >= self.train.every:
            return f"the last training is {self.train.every} ago"
        recently = self.last is not None and now - self.last < _BETWEEN
        if accuracy is not None and accuracy.has_drifted and not recently:
            return f"the error is {accuracy.ratio:.1f} times that of the training"
        return None

    def _start(self, file: str, why: str) -> None:
        self.last = datetime.now(UTC)
        self.listener(TrainingStarted(self.table, why))
        os.makedirs(os.path.dirname(self.log), exist_ok=True)
        # Landing comes first.
        command = ["nice", "-n", "10", sys.executable, "-m", "headgate", "model", "train"]
        with open(self.log, "wb") as log:
            self._process = self.start(
                [*command, file, self.name],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def _outcome(self) -> Sequence[TrainingEntry]:
        code = self._process.poll()
        if code is None:
            return ()
        error = None if code == 0 else self._last_line() or f"exit code {code}"
        self._process = None
        if error is not None:
            self.listener(PredictionFailed(self.table, f"training failed: {error}"))
        return (TrainingEntry(self.table, error),)

    def _last_line(self) -> str:
        with open(self.log, encoding="utf-8", errors="replace") as log:
            lines = [line.strip() for line in log if line.strip()]
        errors = [line for line in lines if line.startswith("error:")]
        return (errors or lines or [""])[-1][:500]


OpenRows = Callable[[str, ChooseColumns], RecentRows | None]
"""Opens the rows of a table in the window; returns None if it does not exist yet."""


class Judge:
    """Knows the error of recent predictions, and has the model trained again."""

    def __init__(
        self,
        accuracy: LiveAccuracy,
        retraining: Retraining,
        scores: PredictionTable,
        open_rows: OpenRows,
    ) -> None:
        self._accuracy, self._retraining = accuracy, retraining
        self._scores, self._open = scores, open_rows
        self._tables: dict[str, RecentRows] = {}
        self._predictions: RecentRows | None = None
        self._last: Accuracy | None = None

    def columns_of(self, names: Sequence[str]) -> Sequence[str]:
        """Return the columns of a table that labels may need."""
        return self._accuracy.query.columns_of(names)

    def follow(self, state: WindowState | None, model: ServingModel) -> list[Entry]:
        """Compare new truths with predictions, now and then; train if it is time to."""
        entries: list[Entry] = []
        found = None
        if state is not None and state.newest is not None and self._accuracy.is_due:
            found = self._measured(state, state.newest, model)
        if found is not None:
            self._last = found
            numbers = found.truths, found.mae, found.trained_mae
            entries.append(AccuracyEntry(self._scores.table, found.model, *numbers))
        return [*entries, *self._retraining.follow(self._last)]

    def _measured(self, state: WindowState, newest: int, model: ServingModel) -> Accuracy | None:
        if model.current is None:
            return None
        for name in self._accuracy.tables:
            if name not in self._tables:
                opened = self._open(name, self.columns_of)
                if opened is None:
                    return None
                self._tables[name] = opened
        if self._predictions is None:
            self._predictions = self._scores.recent()
        own = [one for one in self._tables.values() if one not in state.all]
        for table in (self._predictions, *own):
            table.update()
        newest = max([newest, *(one.newest for one in own if one.newest is not None)])
        for table in (self._predictions, *own):
            table.evict(newest)
        rows = {name: table.rows() for name, table in self._tables.items()}
        predictions = self._predictions.rows()
        return self._accuracy.measure(
            Sql(), rows, predictions, newest, model.current, model.trained_mae
        )
