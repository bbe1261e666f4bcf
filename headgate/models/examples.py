"""Examples to learn from: the features of past moments, and what turned out to be true."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.config import PipelineConfig
from headgate.errors import InvalidPipeline, LandingError, did_you_mean, listed, shown
from headgate.lake.duck import Sql
from headgate.models.features import AT, FeatureQuery, parse_features
from headgate.models.state import from_micros
from headgate.serve.catalog import Catalog
from headgate.serve.query import pull
from headgate.sql.query import parse_query

if TYPE_CHECKING:
    import pandas as pd

KNOWN_AT = "known_at"
LABEL = "label"

_TIME = pa.timestamp("us", "UTC")
_DAY = timedelta(days=1)
_LATER_SHARE = 5
"""One of so many days is kept for evaluation."""
_MOST = 200_000
"""Examples that are used; of more, they are an even sample."""


@dataclass(frozen=True)
class Examples:
    """Features of key and moment, and the label of each, in order of time."""

    frame: pd.DataFrame
    """Key and features, as models get them."""
    at: np.ndarray
    """Moments, in microseconds since 1970."""
    known_at: np.ndarray
    labels: np.ndarray

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def first(self) -> datetime:
        return from_micros(int(self.at.min()))

    @property
    def last(self) -> datetime:
        return from_micros(int(self.at.max()))

    @property
    def days(self) -> int:
        """Number of days with examples."""
        return len(np.unique(self.at // (_DAY // timedelta(microseconds=1))))

    def where(self, chosen: np.ndarray) -> Examples:
        return Examples(
            self.frame[chosen].reset_index(drop=True),
            self.at[chosen],
            self.known_at[chosen],
            self.labels[chosen],
        )


@dataclass(frozen=True)
class Split:
    """Examples of earlier days to learn from, and of later days to evaluate on."""

    earlier: Examples
    later: Examples
    begin: datetime
    """When the later days begin."""


def feature_query(pipeline: PipelineConfig, name: str) -> FeatureQuery:
    """Return the features that a prediction declares."""
    declared = pipeline.predict[name]
    with _located("features"):
        return parse_features(declared.features, declared.key, declared.time, declared.window)


def read_labels(pipeline: PipelineConfig, name: str) -> pa.Table:
    """Return key, `at`, `known_at` and `label` of everything that is known, in order of time."""
    if name not in pipeline.train:
        hint = f"declare it: `train: {{{name}: {{label: labels.sql}}}}`"
        raise LandingError("labels-unfit", f"{shown(name)} has no labels to train with", hint=hint)
    key = pipeline.predict[name].key
    with _located("label"):
        found = pull(Catalog(pipeline), parse_query(pipeline.train[name].label))
    columns = {each.lower(): each for each in found.column_names}
    wanted = (key, AT, KNOWN_AT, LABEL)
    for each in wanted:
        if each.lower() not in columns:
            hint = did_you_mean(each, columns) or f"it has to return {listed(wanted)}"
            raise LandingError("labels-unfit", f"`label` has no column {shown(each)}", hint=hint)
    labels = pa.table(
        {
            key: found[columns[key.lower()]],
            AT: _as_time(found[columns[AT]], AT),
            KNOWN_AT: _as_time(found[columns[KNOWN_AT]], KNOWN_AT),
            LABEL: _as_number(found[columns[LABEL]]),
        }
    )
    return labels.filter(pc.is_finite(labels[LABEL])).drop_null().sort_by([(AT, "ascending")])


def read_examples(pipeline: PipelineConfig, name: str) -> Examples:
    """Evaluate the features at the moment of every label."""
    labels = _sampled(read_labels(pipeline, name))
    query = feature_query(pipeline, name)
    catalog, sql = Catalog(pipeline), Sql()
    for table in query.tables:
        snapshot = catalog.open(catalog.resolve(table))
        sql.register(table, snapshot.read(query.columns_of(table, snapshot.schema.names)))
    with _located("features"):
        features = query.evaluate(sql, labels.select([pipeline.predict[name].key, AT]))
    return Examples(
        features.drop_columns([AT]).to_pandas(),
        _micros(labels[AT]),
        _micros(labels[KNOWN_AT]),
        labels[LABEL].to_numpy(),
    )


def split_by_days(examples: Examples, days: int | None = None) -> Split:
    """Keep the last days, by default a fifth of them, for evaluation.

    Nothing is learned from labels that became known only in the later days.
    """
    day = _DAY // timedelta(microseconds=1)
    every = np.unique(examples.at // day)
    later = max(1, len(every) // _LATER_SHARE) if days is None else days
    if len(every) <= later:
        raise LandingError(
            "labels-unfit",
            f"there are labels of {len(every)} days; training needs more than {later}",
            hint="the last days are kept for evaluation",
        )
    begin = int(every[-later]) * day
    earlier = examples.where(examples.known_at < begin)
    if not len(earlier):
        raise LandingError("labels-unfit", f"no label was known by {from_micros(begin):%Y-%m-%d}")
    return Split(earlier, examples.where(examples.at >= begin), from_micros(begin))


def _sampled(labels: pa.Table) -> pa.Table:
    if not len(labels):
        hint = "headgate query PIPELINE with the query of `label` shows what it returns"
        raise LandingError("labels-unfit", "`label` returns no rows with a label", hint=hint)
    if len(labels) <= _MOST:
        return labels
    return labels.take(np.linspace(0, len(labels) - 1, _MOST).astype("int64"))


def _as_time(column: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
    if not pa.types.is_timestamp(column.type):
        raise LandingError("labels-unfit", f"`label` returns {shown(name)}, not a timestamp")
    return column.cast(_TIME) if column.type.tz else pc.assume_timezone(column, "UTC").cast(_TIME)


def _as_number(column: pa.ChunkedArray) -> pa.ChunkedArray:
    try:
        return column.cast(pa.float64())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise LandingError("labels-unfit", "`label` returns a label that is not a number") from None


def _micros(column: pa.ChunkedArray) -> np.ndarray:
    micros: np.ndarray = column.cast(pa.int64()).to_numpy()
    return micros


@contextmanager
def _located(key: str) -> Iterator[None]:
    """Raise errors of a query with their place in it."""
    try:
        yield
    except InvalidPipeline as error:
        where = "{}:{}:{}".format(key, *error.inside) if error.inside else None
        raise LandingError("bad-query", f"`{key}` {error.message}", error.hint, where) from None
