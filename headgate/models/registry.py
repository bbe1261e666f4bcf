"""The registry of models: MLflow, by default in a database and a folder beside the lake."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import RLock
from typing import TYPE_CHECKING, Any

from headgate.config import PipelineConfig
from headgate.config.location import is_remote
from headgate.errors import HeadgateError, LandingError, extra_missing, shown

if TYPE_CHECKING:
    import pandas as pd
    from mlflow import MlflowClient

SERVING = "serving"
"""The alias of the version that predicts."""

_PACKAGES = {
    "alembic": "alembic",
    "mlflow": "mlflow-skinny",
    "sklearn": "scikit-learn",
    "sqlalchemy": "sqlalchemy",
}
_SCHEME = "models:/"
_LOCATION = "MLFLOW_TRACKING_URI"
_SETTINGS = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    # By default a server that is down is noticed after many minutes.
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "20",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
}
_COLUMNS = ("prediction", "low", "high")
_MISSING = ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE", "NOT_FOUND")

# MLflow keeps its address in globals.
_LOCK = RLock()


def require_models(*modules: str) -> None:
    """Raise SetupError `extra-missing` unless these modules of `headgate[models]` are installed."""
    missing = [_PACKAGES[each] for each in modules or _PACKAGES if find_spec(each) is None]
    if missing:
        raise extra_missing("models", missing)


@dataclass(frozen=True)
class ModelVersion:
    """A registered version of a model."""

    name: str
    version: int
    created_at: datetime
    serving: bool
    metrics: Mapping[str, float] = field(default_factory=dict)
    params: Mapping[str, str] = field(default_factory=dict)

    @property
    def uri(self) -> str:
        return f"{_SCHEME}{self.name}/{self.version}"


@dataclass(frozen=True)
class LoadedModel:
    """A version that can predict."""

    uri_with_version: str
    model: Any = field(repr=False)
    trained_mae: float | None = None
    """Mean absolute error on the later days of its training, if that is known."""

    def predict(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Return `prediction`, `low` and `high` for each row of key and features.

        Any pyfunc model will do: one that returns a number for each row has no range.
        """
        import numpy as np
        import pandas as pd

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = self.model.predict(frame)
        if not isinstance(found, pd.DataFrame):
            found = pd.DataFrame({"prediction": np.asarray(found, dtype="float64").reshape(-1)})
        if "prediction" not in found.columns:
            found = found.rename(columns={found.columns[0]: "prediction"})
        if len(found) != len(frame):
            raise LandingError(
                "model-unfit",
                f"{self.uri_with_version} returned {len(found)} rows for {len(frame)}",
                hint="a model returns a number for each row",
            )
        return found.reset_index(drop=True).reindex(columns=list(_COLUMNS)).astype("float64")


@dataclass(frozen=True)
class ModelRegistry:
    """A store of MLflow."""

    location: str
    """A database, `sqlite:////…/mlflow.db`, or the address of a server."""
    artifacts: str | None = None
    """Folder of the models themselves; None if the server decides."""

    @classmethod
    def of(cls, pipeline: PipelineConfig) -> ModelRegistry:
        """Return the store of a pipeline: `models` beside its lake, or MLFLOW_TRACKING_URI."""
        if location := os.environ.get(_LOCATION):
            return cls(location)
        if is_remote(pipeline.lake):
            raise LandingError(
                "models-unavailable",
                "a lake in an object storage has no registry of models beside it",
                hint=f"set {_LOCATION} to the address of an MLflow server",
            )
        folder = Path(pipeline.lake).parent / "models"
        return cls(f"sqlite:///{folder / 'mlflow.db'}", str(folder / "artifacts"))

    @property
    def _exists(self) -> bool:
        """Whether there is a store; a local one is created when the first model is trained."""
        path = self.location.removeprefix("sqlite:///")
        return path == self.location or Path(path).exists()

    def current_version(self, uri: str) -> str | None:
        """Return the version that a URI such as `models:/name@serving` means now, if any."""
        name, alias, version = _parts(uri)
        if not self._exists:
            return None
        with self._client() as client:
            try:
                if alias is not None:
                    return str(client.get_model_version_by_alias(name, alias).version)
                return str(client.get_model_version(name, str(version)).version)
            except Exception as error:
                if getattr(error, "error_code", None) in _MISSING:
                    return None
                raise

    def load_model(self, uri: str) -> LoadedModel:
        """Load the version that a URI means. Models are Python code: load only trusted ones."""
        version = self.current_version(uri)
        if version is None:
            hint = "headgate model train PIPELINE trains one, and promotes it if it is better"
            raise LandingError("model-missing", f"there is no model `{uri}`", hint=hint)
        exact = f"{_SCHEME}{_parts(uri)[0]}/{version}"
        with self._client() as client:
            import mlflow

            try:
                registered = client.get_model_version(_parts(uri)[0], version)
                trained = self._version(registered, client).metrics
                return LoadedModel(exact, mlflow.pyfunc.load_model(exact), trained.get("mae"))
            except Exception as error:
                message = f"{exact} cannot be loaded: {_first_line(error)}"
                raise LandingError("model-unfit", message) from None

    def register(
        self,
        name: str,
        model: Any,
        params: Mapping[str, object],
        metrics: Mapping[str, float],
        requirements: Sequence[str],
    ) -> ModelVersion:
        """Log a run and its model, and register the model as a new version.

        The model is an `Estimator`, or a `mlflow.pyfunc.PythonModel`.
        """
        with self._client() as client:
            import mlflow

            earlier = client.get_experiment_by_name(name)
            experiment = (
                earlier.experiment_id
                if earlier is not None
                else client.create_experiment(name, artifact_location=self.artifacts)
            )
            with mlflow.start_run(experiment_id=experiment) as run:
                mlflow.log_params(dict(params))
                mlflow.log_metrics(dict(metrics))
                with _saved(model) as saved:
                    logged = mlflow.pyfunc.log_model(
                        name="model", pip_requirements=list(requirements), **saved
                    )
            if not client.search_registered_models(_named(name)):
                client.create_registered_model(name)
            found = client.create_model_version(
                name, logged.model_uri, run.info.run_id, model_id=logged.model_id
            )
            return self._version(found, client)

    def versions(self, name: str) -> list[ModelVersion]:
        """Return all versions of a model, the newest first."""
        if not self._exists:
            return []
        with self._client() as client:
            found = client.search_model_versions(_named(name))
            serving = self.current_version(f"{_SCHEME}{name}@{SERVING}")
            versions = [
                self._version(each, client, serving=str(each.version) == serving) for each in found
            ]
        return sorted(versions, key=lambda each: -each.version)

    def promote(self, name: str, version: int) -> None:
        """Let a version predict from now on."""
        if self.current_version(f"{_SCHEME}{name}/{version}") is None:
            raise LandingError(
                "model-missing",
                f"{shown(name)} has no version {version}",
                hint="headgate model list PIPELINE lists all versions",
            )
        with self._client() as client:
            client.set_registered_model_alias(name, SERVING, str(version))

    def _version(self, found: Any, client: MlflowClient, serving: bool = False) -> ModelVersion:
        run = client.get_run(found.run_id).data if found.run_id else None
        return ModelVersion(
            found.name,
            int(found.version),
            datetime.fromtimestamp(found.creation_timestamp / 1000, UTC),
            serving,
            dict(run.metrics) if run else {},
            dict(run.params) if run else {},
        )

    @contextmanager
    def _client(self) -> Iterator[MlflowClient]:
        """Open the store; raise errors of it as ours."""
        require_models("mlflow", "alembic", "sqlalchemy")
        for name, value in _SETTINGS.items():
            os.environ.setdefault(name, value)
        try:
            if self.artifacts is not None:
                os.makedirs(self.artifacts, exist_ok=True)
            with _LOCK, warnings.catch_warnings():
                warnings.simplefilter("ignore")
                import mlflow

                # MLflow sets the levels of its loggers when it is imported.
                for name in ("mlflow", "alembic"):
                    logging.getLogger(name).setLevel(logging.CRITICAL)
                mlflow.set_tracking_uri(self.location)
                mlflow.set_registry_uri(self.location)
                yield mlflow.MlflowClient(self.location, self.location)
        except HeadgateError:
            raise
        except Exception as error:
            raise LandingError(
                "models-unavailable",
                f"the registry of models at {shown(self.location)} failed: {_first_line(error)}",
                hint=f"it is `models` beside the lake, or what {_LOCATION} says",
            ) from None


@contextmanager
def _saved(model: Any) -> Iterator[dict[str, Any]]:
    """Save a model of ours to a file that its module loads; MLflow saves others itself."""
    from headgate.models.estimator import Estimator

    if not isinstance(model, Estimator):
        yield {"python_model": model}
        return
    with TemporaryDirectory() as folder:
        file = Path(folder) / "estimator.pickle"
        model.save(file)
        yield {"loader_module": Estimator.__module__, "data_path": str(file)}


def model_name(uri: str) -> str:
    """Return the name in a URI such as `models:/name@serving`."""
    return _parts(uri)[0]


def _parts(uri: str) -> tuple[str, str | None, str | None]:
    """Return name, alias and version; one of the latter two is None."""
    name, at, alias = uri.removeprefix(_SCHEME).partition("@")
    if at:
        return name, alias, None
    name, _, version = name.rpartition("/")
    return name, None, version


def _named(name: str) -> str:
    escaped = name.replace("'", "''")
    return f"name='{escaped}'"


def _first_line(error: Exception) -> str:
    text = str(getattr(error, "message", None) or error).strip()
    return shown(text.splitlines()[0]).strip("`") if text else type(error).__name__
