"""Training: a new version of a model, its rivals on days that it has not seen, and promotion."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version as installed_version

import numpy as np
import pandas as pd

from headgate.config import PipelineConfig
from headgate.errors import LandingError, UsageError, did_you_mean, listed, shown
from headgate.models.estimator import Estimator
from headgate.models.examples import (
    Examples,
    Split,
    feature_query,
    read_examples,
    split_by_days,
)
from headgate.models.registry import (
    SERVING,
    LoadedModel,
    ModelRegistry,
    ModelVersion,
    model_name,
    require_models,
)
from headgate.models.serving import Fallback
from headgate.serve.catalog import Catalog

LAST_TRUTHS = 20

NEW, FALLBACK, RECENT = "new model", "fallback", f"mean of last {LAST_TRUTHS}"


@dataclass(frozen=True)
class Score:
    """How well something predicts the labels of the later days."""

    name: str
    mae: float
    """Mean absolute error, in the unit of the label."""
    moments: int
    """Moments that it has a prediction for."""
    coverage: float | None = None
    """Share of labels between `low` and `high`."""


@dataclass(frozen=True)
class Evaluation:
    """Scores on the same moments of the later days."""

    prediction: str
    begin: str
    """First of the later days."""
    days: int
    moments: int
    scores: tuple[Score, ...]
    serving_error: str | None = None
    """Why the serving model has no score."""

    def score(self, name: str) -> Score | None:
        return next((each for each in self.scores if each.name == name), None)


@dataclass(frozen=True)
class Trained:
    """A new version of a model."""

    version: ModelVersion
    examples: int
    """Labels that it learned from."""
    days: int
    evaluation: Evaluation
    promoted: bool
    reason: str
    """Why it was promoted, or why not."""


@dataclass(frozen=True)
class Importance:
    """How much the error grows when the values of a feature are shuffled."""

    feature: str
    error_added: float


def declared_prediction(pipeline: PipelineConfig, name: str | None) -> str:
    """Return the prediction of that name, or the only one."""
    known = list(pipeline.predict)
    if not known:
        hint = "declare one: `predict: {NAME: …}`"
        raise UsageError("bad-argument", "the pipeline has no predictions", hint=hint)
    if name is None and len(known) == 1:
        return known[0]
    if name is None:
        message = f"the pipeline has {len(known)} predictions: {listed(known)}"
        raise UsageError("bad-argument", message, hint="name the one to use")
    if name not in known:
        hint = did_you_mean(name, known) or f"there are {listed(known)}"
        raise UsageError("bad-argument", f"there is no prediction {shown(name)}", hint=hint)
    return name


def train(pipeline: PipelineConfig, name: str, *, promote: bool | None = None) -> Trained:
    """Train a version, register it, and promote it if it is better than what predicts now.

    With `promote`, the declaration does not matter: the version is promoted, or is not.
    """
    require_models()
    split = split_by_days(read_examples(pipeline, name))
    key = pipeline.predict[name].key
    model = Estimator.train(split.earlier.frame, key, split.earlier.labels)
    registry = ModelRegistry.of(pipeline)
    evaluation = _evaluate(pipeline, name, split, model)
    version = _register(pipeline, name, registry, model, split, evaluation)
    promoted, reason = _decide(pipeline, name, evaluation, promote)
    if promoted:
        registry.promote(version.name, version.version)
    return Trained(version, len(split.earlier), split.earlier.days, evaluation, promoted, reason)


def evaluate(pipeline: PipelineConfig, name: str, days: int | None = None) -> Evaluation:
    """Score what serves, and its rivals, on the last days."""
    require_models()
    return _evaluate(pipeline, name, split_by_days(read_examples(pipeline, name), days), None)


def explain(pipeline: PipelineConfig, name: str, version: int | None = None) -> list[Importance]:
    """Return features by how much worse predictions get without them, on the later days."""
    require_models()
    registry = ModelRegistry.of(pipeline)
    uri = pipeline.model_uri(name)
    model = registry.load_model(uri if version is None else f"models:/{model_name(uri)}/{version}")
    later = split_by_days(read_examples(pipeline, name)).later
    random = np.random.default_rng(0)
    before = _error(_predicted(model, later), later.labels)
    found = []
    for column in later.frame.columns:
        shuffled = later.frame.copy()
        shuffled[column] = shuffled[column].to_numpy()[random.permutation(len(later))]
        after = _error(model.predict(shuffled)["prediction"].to_numpy(), later.labels)
        found.append(Importance(str(column), after - before))
    return sorted(found, key=lambda each: -each.error_added)


def _evaluate(
    pipeline: PipelineConfig, name: str, split: Split, model: Estimator | None
) -> Evaluation:
    later = split.later
    scores, failed = [], None
    if model is not None:
        scores.append(_score(NEW, model.predict(later.frame), later))
    try:
        if (serving := _serving(pipeline, name)) is not None:
            scores.append(_score(SERVING, serving.predict(later.frame), later))
    except Exception as error:
        if model is None:
            raise
        # A new model replaces one that does not fit the features any more.
        failed = str(getattr(error, "message", error))
    stale = _fallback(pipeline, name, later)
    for rival, values in ((FALLBACK, stale), (RECENT, recent_means(split))):
        if values is not None and not np.isnan(values).all():
            scores.append(_score(rival, pd.DataFrame({"prediction": values}), later))
    return Evaluation(
        name, f"{split.begin:%Y-%m-%d}", later.days, len(later), tuple(scores), failed
    )


def _score(name: str, predicted: pd.DataFrame, later: Examples) -> Score:
    values = predicted["prediction"].to_numpy()
    coverage = None
    if {"low", "high"} <= set(predicted.columns) and predicted["low"].notna().any():
        inside = (predicted["low"] <= later.labels) & (later.labels <= predicted["high"])
        coverage = float(inside.mean())
    return Score(name, _error(values, later.labels), int(np.isfinite(values).sum()), coverage)


def _error(values: np.ndarray, labels: np.ndarray) -> float:
    return float(np.nanmean(np.abs(values - labels)))


def _predicted(model: LoadedModel, examples: Examples) -> np.ndarray:
    return np.asarray(model.predict(examples.frame)["prediction"])


def _serving(pipeline: PipelineConfig, name: str) -> LoadedModel | None:
    registry, uri = ModelRegistry.of(pipeline), pipeline.model_uri(name)
    return registry.load_model(uri) if registry.current_version(uri) is not None else None


def _fallback(pipeline: PipelineConfig, name: str, later: Examples) -> np.ndarray | None:
    """Return the value of the fallback for each moment, as it is now."""
    declared = pipeline.predict[name]
    if declared.fallback is None:
        return None
    values = Fallback(Catalog(pipeline), declared.fallback, declared.key).values()
    return np.asarray(later.frame[declared.key].map(dict(values)), dtype="float64")


def recent_means(split: Split) -> np.ndarray:
    """Return the mean of the last labels of the key that were known by each later moment."""
    earlier, later = split.earlier, split.later
    key = later.frame.columns[0]
    keys = pd.concat([earlier.frame[key], later.frame[key]]).to_numpy()
    known_at = np.concatenate([earlier.known_at, later.known_at])
    labels = np.concatenate([earlier.labels, later.labels])
    found = np.full(len(later), np.nan)
    for each in pd.unique(later.frame[key]):
        mine = np.flatnonzero(keys == each)
        mine = mine[np.argsort(known_at[mine], kind="stable")]
        sums = np.concatenate([[0.0], np.cumsum(labels[mine])])
        wanted = np.flatnonzero((later.frame[key] == each).to_numpy())
        upto = np.searchsorted(known_at[mine], later.at[wanted], side="right")
        count = np.minimum(upto, LAST_TRUTHS)
        with np.errstate(invalid="ignore"):
            found[wanted] = (sums[upto] - sums[upto - count]) / count
    return found


def _register(
    pipeline: PipelineConfig,
    name: str,
    registry: ModelRegistry,
    model: Estimator,
    split: Split,
    evaluation: Evaluation,
) -> ModelVersion:
    query = feature_query(pipeline, name)
    mine = evaluation.score(NEW)
    assert mine is not None
    params: dict[str, object] = {
        "pipeline": pipeline.name,
        "prediction": name,
        "key": query.key,
        "features": ",".join(query.names)[:6000],
        "features_digest": query.digest,
        "trained_from": f"{split.earlier.first:%Y-%m-%d}",
        "trained_until": f"{split.begin:%Y-%m-%d}",
        "trained_days": split.earlier.days,
        "trained_examples": len(split.earlier),
        "evaluated_days": evaluation.days,
    }
    metrics: Mapping[str, float] = {
        "mae": mine.mae,
        "coverage": mine.coverage or 0.0,
        **{
            f"mae_{rival}": score.mae
            for rival, score in (
                ("fallback", evaluation.score(FALLBACK)),
                ("recent_mean", evaluation.score(RECENT)),
                (SERVING, evaluation.score(SERVING)),
            )
            if score is not None
        },
    }
    uri = pipeline.model_uri(name)
    return registry.register(model_name(uri), model, params, metrics, _requirements())


def _requirements() -> Sequence[str]:
    return [f"{each}=={installed_version(each)}" for each in ("headgate", "scikit-learn")]


def _decide(
    pipeline: PipelineConfig, name: str, evaluation: Evaluation, promote: bool | None
) -> tuple[bool, str]:
    if promote is not None:
        return promote, "as asked" if promote else "not promoted, as asked"
    if pipeline.train[name].promote == "never":
        return False, "`promote: never`"
    if not pipeline.model_uri(name).endswith(f"@{SERVING}"):
        return False, f"the pipeline names {pipeline.model_uri(name)}, not {SERVING}"
    mine = evaluation.score(NEW)
    assert mine is not None
    rival = evaluation.score(SERVING) or evaluation.score(FALLBACK)
    if rival is None:
        return True, "there was nothing to compare it with"
    if mine.mae < rival.mae:
        return True, f"better than {_called(rival)}: {mine.mae:.2f} instead of {rival.mae:.2f}"
    return False, f"not better than {_called(rival)}: {mine.mae:.2f} against {rival.mae:.2f}"


def _called(rival: Score) -> str:
    return "the serving model" if rival.name == SERVING else "the fallback"


def promote_version(pipeline: PipelineConfig, name: str, version: int | None) -> ModelVersion:
    """Let a version predict, by default the newest."""
    registry = ModelRegistry.of(pipeline)
    model = model_name(pipeline.model_uri(name))
    versions = registry.versions(model)
    if not versions:
        hint = "headgate model train PIPELINE"
        raise LandingError("model-missing", f"{shown(model)} has no versions", hint=hint)
    number = versions[0].version if version is None else version
    registry.promote(model, number)
    return next(each for each in registry.versions(model) if each.version == number)
