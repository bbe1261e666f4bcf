"""The model that Headgate trains: gradient-boosted trees for a value and the range around it."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from headgate.errors import LandingError, listed, shown

LOW, HIGH = 0.1, 0.9
"""Of ten values, one is below the range and one is above."""

_MOST_CATEGORIES = 250
"""Values of a categorical feature; rarer ones count as unknown."""
_TREES = 300


@dataclass(frozen=True)
class Encoding:
    """How a frame of key and features becomes a matrix of numbers."""

    names: tuple[str, ...]
    categories: Mapping[str, tuple[object, ...]] = field(repr=False)
    """Known values of the columns that are categories: the key, and texts."""

    @classmethod
    def of(cls, frame: pd.DataFrame, key: str) -> Encoding:
        """Choose the encoding of a frame to train with."""
        categories: dict[str, tuple[object, ...]] = {}
        for name in frame.columns:
            if name == key or _is_text(frame[name]):
                counts = frame[name].value_counts()
                categories[name] = tuple(sorted(counts.index[:_MOST_CATEGORIES], key=str))
        return cls(tuple(frame.columns), categories)

    def encode(self, frame: pd.DataFrame) -> np.ndarray:
        """Return a matrix; what is null or unknown is NaN."""
        if missing := [name for name in self.names if name not in frame.columns]:
            message = (
                f"the features do not have {listed(missing)}, which the model was trained with"
            )
            raise LandingError("model-unfit", message, hint="train it again: headgate model train")
        return np.column_stack([self._column(name, frame[name]) for name in self.names])

    def _column(self, name: str, values: pd.Series) -> np.ndarray:
        if name in self.categories:
            codes = {each: float(at) for at, each in enumerate(self.categories[name])}
            return _numbers(values.map(codes))
        if not _is_number(values):
            raise LandingError(
                "model-unfit",
                f"the feature {shown(name)} is neither a number nor a text",
                hint="for a time, write how long ago it was: unix_seconds(moment) - …",
            )
        return _numbers(pd.to_numeric(values, errors="coerce"))


def _numbers(values: pd.Series) -> np.ndarray:
    return np.asarray(values.to_numpy(dtype="float64", na_value=np.nan))


def _is_text(values: pd.Series) -> bool:
    kinds = set(map(type, values.dropna().head(100)))
    return bool(kinds) and kinds <= {str}


def _is_number(values: pd.Series) -> bool:
    if pd.api.types.is_numeric_dtype(values) or pd.api.types.is_bool_dtype(values):
        return True
    # Decimals, and booleans or numbers beside nulls, are objects to pandas.
    numbers = pd.to_numeric(values, errors="coerce")
    return values.dtype == object and bool(numbers.notna().equals(values.notna()))


@dataclass(frozen=True)
class Estimator:
    """A trained model."""

    encoding: Encoding
    regressors: tuple[Any, Any, Any] = field(repr=False)
    """For the value, and for the ends of its range."""

    @classmethod
    def train(cls, frame: pd.DataFrame, key: str, labels: np.ndarray) -> Estimator:
        """Train on a frame of key and features."""
        from sklearn.ensemble import HistGradientBoostingRegressor

        encoding = Encoding.of(frame, key)
        matrix = encoding.encode(frame)
        shape = {
            "max_iter": _TREES,
            "learning_rate": 0.06,
            "max_leaf_nodes": 31,
            "min_samples_leaf": 40,
            "l2_regularization": 1.0,
            "categorical_features": [name in encoding.categories for name in encoding.names],
            "random_state": 0,
        }
        regressors = (
            HistGradientBoostingRegressor(loss="absolute_error", **shape),
            HistGradientBoostingRegressor(loss="quantile", quantile=LOW, **shape),
            HistGradientBoostingRegressor(loss="quantile", quantile=HIGH, **shape),
        )
        value, low, high = (each.fit(matrix, labels) for each in regressors)
        return cls(encoding, (value, low, high))

    @property
    def names(self) -> Sequence[str]:
        return self.encoding.names

    def predict(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Return `prediction`, `low` and `high` for each row."""
        matrix = self.encoding.encode(frame)
        value, low, high = (each.predict(matrix) for each in self.regressors)
        return pd.DataFrame(
            {
                "prediction": value,
                "low": np.minimum(low, value),
                "high": np.maximum(high, value),
            }
        )

    def save(self, file: Path) -> None:
        file.write_bytes(pickle.dumps(self))


def _load_pyfunc(path: str) -> Estimator:
    """Load a model; called by MLflow."""
    loaded = pickle.loads(Path(path).read_bytes())
    assert isinstance(loaded, Estimator)
    return loaded
