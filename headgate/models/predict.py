"""Predictions as records land: keys with new rows are scored after every batch, and all keys that
are active now and then.

Scores are committed to a Delta table, one commit per batch, and optionally published to a topic.
Nothing that goes wrong here stops landing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from math import isfinite
from time import monotonic, perf_counter
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from headgate.config import Kafka, PipelineConfig, Train
from headgate.config.location import is_remote
from headgate.engine.events import Listener, ModelServes, Predicted, PredictionFailed
from headgate.engine.follow_up import Followed, TableChanged
from headgate.errors import LandingError
from headgate.jars.jars import headgate_home
from headgate.lake.commit import Committer
from headgate.lake.duck import Sql
from headgate.lake.ledger_entries import Entry, PredictionEntry, TrainingEntry
from headgate.lake.ledger_snapshot import LedgerSnapshot
from headgate.lake.streams import app_id
from headgate.models.accuracy import JUDGE_SECONDS, Judge, LiveAccuracy, Retraining
from headgate.models.features import AT, RECORD_TIME, parse_features
from headgate.models.publish import (
    Producer,
    TopicEncoder,
    TopicPublisher,
    kafka_producer,
    topic_encoder,
)
from headgate.models.registry import ModelRegistry
from headgate.models.scores import FALLBACK, PredictionTable, Scored, prediction_id
from headgate.models.serving import CHECK_SECONDS, Fallback, Registry, ServingModel, reason
from headgate.models.state import (
    ChooseColumns,
    Key,
    RecentRows,
    WindowState,
    from_micros,
    micros,
)
from headgate.serve.catalog import Catalog

if TYPE_CHECKING:
    import pandas as pd

_RETRY_SECONDS = 30.0
"""How often versions that could not predict are tried again."""


def event_times(declared: str | None) -> list[str]:
    """Return the columns with the event time of a row, the first that is not null."""
    return [RECORD_TIME] if declared in (None, RECORD_TIME) else [str(declared), RECORD_TIME]


@dataclass(frozen=True)
class _Estimate:
    """A value for one key, and the state that it is based on."""

    key: Key
    prediction: float
    low: float | None
    high: float | None
    model: str
    state: Mapping[str, Any]

    def same_value(self, last: Scored) -> bool:
        if (self.model == FALLBACK) != (last.model == FALLBACK):
            return False
        return (self.prediction, self.low, self.high) == (last.prediction, last.low, last.high)


class Prediction:
    """One declared prediction, in one run."""

    def __init__(
        self,
        pipeline: PipelineConfig,
        name: str,
        committer: Committer,
        listener: Listener,
        registry: Registry,
        connect: Callable[[Kafka], Producer] = kafka_producer,
        check_seconds: float = CHECK_SECONDS,
        judge_seconds: float = JUDGE_SECONDS,
    ) -> None:
        self.name = name
        self.table = pipeline.prediction_tables[name]
        self.declared = pipeline.predict[name]
        self.catalog = Catalog(pipeline)
        self._listener = listener
        app = f"{app_id(pipeline.name)}:predict:{name}"
        self._scores = PredictionTable(
            committer, self.table, app, self.declared.key, self.declared.window
        )
        self._sql = Sql()
        self._query = parse_features(
            self.declared.features, self.declared.key, self.declared.time, self.declared.window
        )
        self._tables: dict[str, RecentRows] = {}
        self._state: WindowState | None = None
        fallback = self.declared.fallback
        self._fallback = Fallback(self.catalog, fallback, self.declared.key) if fallback else None
        self._last: dict[Key, Scored] | None = self._last_of_earlier_run()
        """The newest prediction of each key."""
        uri, earlier = pipeline.model_uri(name), _model_of(self._last)
        self.model = ServingModel(uri, registry, earlier, check_seconds)
        self._publisher = _publisher(pipeline, name, connect)
        train = pipeline.train.get(name)
        self._judge = self._new_judge(train, judge_seconds) if train else None
        self._scored_all = float("-inf")
        self._scored_at: int | None = None
        self._published_again = False
        self._failed = float("-inf")
        self._retried = monotonic()
        self._errors: dict[str, str] = {}
        self._serves: str | None = None

    def _new_judge(self, train: Train, every: float) -> Judge:
        pipeline = self.catalog.pipeline
        ledger = LedgerSnapshot.open_all(pipeline.lake, pipeline.ledger, pipeline.name)
        trained = ledger.entries(TrainingEntry, table=self.table)
        last = trained[-1].at if trained else None
        folder = headgate_home() if is_remote(pipeline.lake) else pipeline.lake
        log = f"{folder}/_training/{self.name}.log"
        return Judge(
            LiveAccuracy(train.label, self.declared.key, every),
            Retraining(pipeline.file, self.name, self.table, train, log, self._listener, last),
            self._scores,
            self._open_recent,
        )

    def start(self) -> None:
        """Begin to load the model and the topic's schema, while Spark starts."""
        self.model.start()
        if self._publisher:
            self._publisher.start()

    def follow(self, batch: int | None) -> list[Entry]:
        """Score what has changed; `batch` is None while the source is idle."""
        if batch is None and monotonic() - self._failed < _RETRY_SECONDS:
            return []
        began = perf_counter()
        try:
            fresh, kind = self._score(batch), self._key_type
            scored = perf_counter() - began
            version = self._write(fresh, kind)
        except Exception as error:  # anything in a query, a model or a table
            self._scored_at, self._failed = None, monotonic()
            return self._report("features", reason(error), "will be retried with the next batch")
        self._errors.pop("features", None)
        if self._state is not None:
            self._state.changed.clear()
        entries = self._report_model()
        self._report_topic()
        if fresh:
            fallback = sum(row.model == FALLBACK for row in fresh)
            model = next((row.model for row in fresh if row.model != FALLBACK), None)
            seconds = perf_counter() - began
            self._listener(Predicted(self.table, len(fresh), fallback, model, seconds, scored))
            made = len(fresh), version, model, fallback, self._errors.get("model")
            entries.append(PredictionEntry(self.table, *made))
        return [*entries, *self._judged()]

    def _judged(self) -> list[Entry]:
        """Compare predictions with the truth, and train the model again if necessary."""
        if self._judge is None:
            return []
        try:
            entries = self._judge.follow(self._state, self.model)
        except Exception as error:  # the query for labels, or a process that cannot be started
            return self._report("label", reason(error), "the error of predictions is unknown")
        self._errors.pop("label", None)
        return entries

    # What to score, and with what.

    def _score(self, batch: int | None) -> list[Scored]:
        state = self._updated_state()
        if state is None or state.newest is None:
            return []
        if self._last is None:
            self._last = self._scores.read_last()
        if not self._published_again:
            self._published_again = True
            self._publish_again(state)
        everything = self._all_due(state, batch)
        changed = state.active_changed()
        keys = state.active() if everything else changed
        if not keys:
            return []
        if everything:
            self._scored_all, self._scored_at = monotonic(), state.newest
        now, with_rows = datetime.now(UTC), set(changed)
        at = from_micros(state.newest)
        return [
            self._scored(one, at, now)
            for one in self._estimates(state, keys)
            if self._is_new(one, one.key in with_rows)
        ]

    def _all_due(self, state: WindowState, batch: int | None) -> bool:
        """Whether to score all active keys, and not only those with new rows."""
        if self.model.error is not None and monotonic() - self._retried > _RETRY_SECONDS:
            self._retried = monotonic()
            self.model.forget_errors()
        if self._scored_at is None or self.model.waiting is not None:
            return True
        passed = monotonic() - self._scored_all
        is_time = batch is None or passed >= self.declared.every.total_seconds()
        return is_time and self._scored_at != state.newest

    def _estimates(self, state: WindowState, keys: Sequence[Key]) -> list[_Estimate]:
        estimates: dict[Key, _Estimate] = {}
        if self._has_all_tables:
            estimates = {one.key: one for one in self._predicted(state, keys)}
        missing = [key for key in keys if key not in estimates]
        if missing and self._fallback is not None:
            values = self._fallback.values()
            for key in missing:
                value = values.get(key)
                if value is not None:
                    given = {FALLBACK: value}
                    estimates[key] = _Estimate(key, value, None, None, FALLBACK, given)
        return [estimates[key] for key in keys if key in estimates]

    def _predicted(self, state: WindowState, keys: Sequence[Key]) -> list[_Estimate]:
        features = self._features(state, keys)
        found = self.model.predict(_frame(features))
        if found is None:
            return []
        model, frame = found
        rows = features.drop_columns([AT]).to_pylist()
        return [
            _Estimate(row.pop(self.declared.key), value, low, high, model, row)
            for row, (value, low, high) in zip(rows, _numbers(frame), strict=True)
            if value is not None
        ]

    def _features(self, state: WindowState, keys: Sequence[Key]) -> pa.Table:
        assert state.newest is not None
        key = pa.array(keys, state.key_type())
        at = pa.array([state.newest] * len(keys), pa.int64()).cast(pa.timestamp("us", "UTC"))
        moments = pa.table({self.declared.key: key, AT: at})
        for name, rows in state.rows().items():
            self._sql.register(name, rows)
        return self._query.evaluate(self._sql, moments)

    def _is_new(self, one: _Estimate, has_new_rows: bool) -> bool:
        assert self._last is not None
        last = self._last.get(one.key)
        if last is None or not one.same_value(last):
            return True
        if not has_new_rows:
            return False
        return prediction_id(self.name, one.key, micros(last.at), one.state) != last.prediction_id

    def _scored(self, one: _Estimate, at: datetime, now: datetime) -> Scored:
        id_ = prediction_id(self.name, one.key, micros(at), one.state)
        return Scored(one.key, one.prediction, one.low, one.high, at, one.model, id_, now)

    # The rows that features are computed from.

    @property
    def _has_all_tables(self) -> bool:
        return len(self._tables) == len(self._query.tables)

    @property
    def _key_type(self) -> pa.DataType:
        return self._state.key_type() if self._state is not None else pa.null()

    def _updated_state(self) -> WindowState | None:
        for name in self._query.tables:
            if name not in self._tables:
                self._open(name)
        if not self._tables:
            return None
        if self._state is None:
            key, window = self.declared.key, self.declared.window
            self._state = WindowState(key, window, self._tables)
        self._state.update()
        return self._state

    def _open(self, name: str) -> None:
        """Begin to read a table, once it exists."""
        query, key, labels = self._query, self.declared.key, self._judge

        def choose(names: Sequence[str]) -> Sequence[str]:
            for_labels = labels.columns_of(names) if labels else ()
            return [key, *query.columns_of(name, names), *for_labels]

        rows = self._open_recent(name, choose)
        if rows is not None:
            self._tables[name] = rows

    def _open_recent(self, name: str, choose: ChooseColumns) -> RecentRows | None:
        """Return the rows of a table in the window; None if it does not exist yet."""
        try:
            table = self.catalog.resolve(name)
        except LandingError:
            return None
        shared = (one for one in self._tables.values() if one.table == table)
        lake, times = self.catalog.pipeline.lake, event_times(self.declared.time)
        return next(shared, None) or RecentRows(lake, table, times, self.declared.window, choose)

    # The table of predictions.

    def _last_of_earlier_run(self) -> dict[Key, Scored] | None:
        try:
            return self._scores.read_last()
        except Exception:  # the first batch tries again, and reports it
            return None

    def _publish_again(self, state: WindowState) -> None:
        """Publish the newest predictions of an earlier run.

        It may have been killed between writing and publishing; ids show what is a repeat.
        """
        if self._publisher and self._last:
            active = set(state.active())
            self._publisher.send([row for key, row in self._last.items() if key in active])

    def _write(self, fresh: Sequence[Scored], kind: pa.DataType) -> int | None:
        """Commit and publish new predictions."""
        if self._publisher and (fresh or self._publisher.has_work):
            self._publisher.send(fresh)
        version = self._commit(fresh, kind) if fresh else None
        if self._publisher:
            self._publisher.wait()
        assert self._last is not None or not fresh
        if self._last is not None:
            self._last |= {row.key: row for row in fresh}
        return version

    def _commit(self, fresh: Sequence[Scored], kind: pa.DataType) -> int:
        try:
            return self._scores.commit(fresh, kind)
        except Exception:
            # Another run may have written: read its predictions before the next attempt.
            self._last = None
            raise

    # What people get to know.

    def _report_model(self) -> list[Entry]:
        error, current = self.model.error, self.model.current
        if current is not None and current != self._serves:
            self._serves = current
            self._listener(ModelServes(self.table, current))
        if error is None:
            self._errors.pop("model", None)
            return []
        instead = "no predictions are written"
        if current is not None:
            instead = f"{current} goes on predicting"
        elif self._fallback is not None:
            instead = "the fallback is used"
        return self._report("model", error, instead)

    def _report_topic(self) -> None:
        if self._publisher is None:
            return
        if self._publisher.error is None:
            self._errors.pop("topic", None)
        else:
            self._report("topic", self._publisher.error, "predictions will be published again")

    def _report(self, what: str, error: str, instead: str) -> list[Entry]:
        """Report an error once, until it is over or another."""
        if self._errors.get(what) == error:
            return []
        self._errors[what] = error
        self._listener(PredictionFailed(self.table, error, instead))
        return [PredictionEntry(self.table, 0, None, self.model.current, 0, f"{error}; {instead}")]


def _publisher(
    pipeline: PipelineConfig, name: str, connect: Callable[[Kafka], Producer]
) -> TopicPublisher | None:
    topic, source = pipeline.predict[name].to.topic, pipeline.source
    if topic is None or not isinstance(source, Kafka):
        return None

    def encoder() -> TopicEncoder:
        return topic_encoder(pipeline, name)

    return TopicPublisher(topic, encoder, lambda: connect(source))


def _model_of(last: Mapping[Key, Scored] | None) -> str | None:
    """Return the version that predicted last."""
    rows = [row for row in (last or {}).values() if row.model != FALLBACK]
    return max(rows, key=lambda row: row.predicted_at).model if rows else None


def _frame(features: pa.Table) -> pd.DataFrame:
    frame: pd.DataFrame = features.drop_columns([AT]).to_pandas()
    return frame


def _numbers(frame: pd.DataFrame) -> list[tuple[float | None, float | None, float | None]]:
    """Return prediction, low and high of each row; None for what is not a number."""

    def column(name: str) -> list[float | None]:
        if name not in frame.columns:
            return [None] * len(frame)
        return [float(one) if one is not None and isfinite(one) else None for one in frame[name]]

    return list(zip(column("prediction"), column("low"), column("high"), strict=True))


class PredictFollowUp:
    """Updates predictions after the tables that they are based on.

    It reads the commits of these tables itself, of all writers: landing, derivation or a replay of
    the quarantine.
    """

    while_idle: ClassVar = True
    of_all_tables: ClassVar = False

    def __init__(self, predictions: Sequence[Prediction]) -> None:
        self._predictions = predictions
        for one in predictions:
            one.start()

    @classmethod
    def of(
        cls, pipeline: PipelineConfig, committer: Committer, listener: Listener
    ) -> PredictFollowUp:
        registry = ModelRegistry.of(pipeline)
        return cls(
            [Prediction(pipeline, name, committer, listener, registry) for name in pipeline.predict]
        )

    def follow(self, changed: Sequence[TableChanged], batch: int | None) -> Followed:
        entries: list[Entry] = []
        for one in self._predictions:
            entries += one.follow(batch)
        return Followed(entries)
