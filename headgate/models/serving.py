"""What predictions are made with: the model of the registry, and the fallback without one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from importlib.util import find_spec
from time import monotonic
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

import pyarrow as pa

from headgate.errors import LandingError, shown
from headgate.serve.catalog import Catalog
from headgate.serve.push import Portion, PushQuery
from headgate.sql.query import parse_query

if TYPE_CHECKING:
    import pandas as pd
    from threadpoolctl import ThreadpoolController

CHECK_SECONDS = 3.0
"""How often to look for a newly promoted version."""
_RELOAD_SECONDS = 30.0
"""How long to wait before a version that could not be loaded is loaded again."""
_FIRST_SECONDS = 20.0
"""How long the first batch of a run waits for the model."""

Result = TypeVar("Result")


class Background(Generic[Result]):
    """The result of a slow call, which is made again now and then in a thread of its own.

    A call that never returns keeps the last result, and delays nothing.
    """

    def __init__(
        self, call: Callable[[], Result], every: float, wait_first: float = _FIRST_SECONDS
    ) -> None:
        self.error: Exception | None = None
        """Why the last call failed."""
        self._call, self._every, self._wait = call, every, wait_first
        self._result: Result | None = None
        self._thread: threading.Thread | None = None
        self._began = 0.0

    def start(self) -> None:
        """Make the call, unless it is under way or was made recently."""
        if self._thread is None or (
            not self._thread.is_alive() and monotonic() - self._began >= self._every
        ):
            self._began = monotonic()
            self._thread = threading.Thread(target=self._run, name="headgate-model", daemon=True)
            self._thread.start()

    def newest(self) -> Result | None:
        """Return the last result; only the first time, wait for it."""
        self.start()
        if self._wait and self._thread is not None:
            self._thread.join(self._wait)
            self._wait = 0.0
        return self._result

    def _run(self) -> None:
        try:
            self._result, self.error = self._call(), None
        except Exception as error:  # anything can go wrong in a registry or in a user's model
            self.error = error


class Model(Protocol):
    """A loaded model."""

    @property
    def uri_with_version(self) -> str: ...

    @property
    def trained_mae(self) -> float | None: ...

    def predict(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Return `prediction`, `low` and `high` for each row of key and features."""
        ...


class Registry(Protocol):
    """A registry of models."""

    def current_version(self, uri: str) -> str | None: ...

    def load_model(self, uri: str) -> Model: ...


class ServingModel:
    """The model that predicts now: the promoted one, or the last good one."""

    def __init__(
        self,
        uri: str,
        registry: Registry,
        earlier: str | None = None,
        every: float = CHECK_SECONDS,
    ) -> None:
        self.uri = uri
        self._registry = registry
        self._earlier = earlier
        """A version that predicted in an earlier run."""
        self._loaded: tuple[str, Model] | None = None
        self._not_loaded: tuple[str, float, Exception] | None = None
        """A version, when it could not be loaded, and why."""
        self._found = Background(self._load, every)
        self._good: Model | None = None
        self._bad: dict[str, str] = {}
        """Why models could not predict, by version."""
        self._threads: ThreadpoolController | None = None
        """Limits a model to one thread: for a few rows, threads that wait for each other cost far
        more than they save if Spark uses all cores."""

    def start(self) -> None:
        self._found.start()

    @property
    def current(self) -> str | None:
        """The version that predicted last."""
        return None if self._good is None else self._good.uri_with_version

    @property
    def trained_mae(self) -> float | None:
        """The mean absolute error that the version had when it was trained."""
        return None if self._good is None else self._good.trained_mae

    @property
    def waiting(self) -> str | None:
        """A version that has not predicted yet."""
        found = self._found.newest()
        if found is None or found is self._good or found.uri_with_version in self._bad:
            return None
        return found.uri_with_version

    @property
    def error(self) -> str | None:
        """Why the promoted version does not predict."""
        if self._found.error is not None:
            return reason(self._found.error)
        found = self._found.newest()
        return None if found is None else self._bad.get(found.uri_with_version)

    def predict(self, frame: pd.DataFrame) -> tuple[str, pd.DataFrame] | None:
        """Return predictions and the version that made them; None if no version can."""
        promoted = self._found.newest()
        for model in (promoted, self._good):
            if model is None or model.uri_with_version in self._bad:
                continue
            try:
                with self._threads.limit(limits=1) if self._threads else nullcontext():
                    predicted = model.predict(frame)
            except Exception as error:  # features that do not fit, or an error of the model's own
                self._bad[model.uri_with_version] = reason(error)
                continue
            self._good = model
            return model.uri_with_version, predicted
        return None

    def forget_errors(self) -> None:
        """Try all versions again: the features may fit by now."""
        self._bad.clear()

    def _load(self) -> Model:
        version = self._registry.current_version(self.uri)
        if version is None:
            raise LandingError("model-missing", f"{self.uri} is not registered yet")
        if self._loaded is None or self._loaded[0] != version:
            if self._not_loaded is not None:
                failed, at, why = self._not_loaded
                if failed == version and monotonic() - at < _RELOAD_SECONDS:
                    raise why
            try:
                self._loaded = version, self._registry.load_model(self.uri)
            except Exception as error:
                self._not_loaded = version, monotonic(), error
                if self._good is None and self._earlier not in (None, version):
                    self._good = self._registry.load_model(str(self._earlier))
                raise
            self._threads = _thread_pools()
        return self._loaded[1]


def _thread_pools() -> ThreadpoolController | None:
    """Return the thread pools of the libraries that are loaded by now."""
    if find_spec("threadpoolctl") is None:
        return None
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def reason(error: Exception) -> str:
    """Return the first line of an error; its kind too, unless it is one of Headgate's own."""
    text = str(getattr(error, "message", None) or error).strip()
    first = text.splitlines()[0] if text else ""
    return first if isinstance(error, LandingError) else f"{type(error).__name__}: {first}"


def parse_fallback(text: str) -> str:
    """Return the fallback as a push query. Raises `InvalidPipeline` if it cannot be one."""
    query = f"{text.strip().rstrip(';')}\nEMIT CHANGES"
    parse_query(query)
    return query


class Fallback:
    """Values of the fallback by key, updated with every commit of its tables.

    Of several rows of a key, the last one counts.
    """

    def __init__(self, catalog: Catalog, text: str, key: str) -> None:
        self._catalog, self._key = catalog, key
        self._text = parse_fallback(text)
        self._query: PushQuery | None = None
        self._values: dict[object, float] = {}

    def values(self) -> Mapping[object, float]:
        """Return the values as of now; none while the tables do not exist."""
        try:
            if self._query is None:
                self._values = {}
                query = PushQuery(self._catalog, self._text)
                for portion in query.start():
                    self._take(portion)
                self._query = query
            while (change := self._query.poll()) is not None:
                if isinstance(change, Portion):
                    self._take(change)
        except LandingError as error:
            self._query = None
            if error.code not in ("table-unknown", "table-replaced", "version-vacuumed"):
                raise
        return self._values

    def _take(self, portion: Portion) -> None:
        key, value = self._columns(portion)
        for row in portion.rows.deleted.column(key).to_pylist():
            self._values.pop(row, None)
        for rows in (portion.rows.after, portion.rows.inserted):
            pairs = zip(
                rows.column(key).to_pylist(),
                rows.column(value).cast(pa.float64()).to_pylist(),
                strict=True,
            )
            self._values |= {one: found for one, found in pairs if found is not None}

    def _columns(self, portion: Portion) -> tuple[int, int]:
        names = [name.lower() for name in portion.names]
        if len(names) != 2 or self._key.lower() not in names:
            raise LandingError(
                "bad-query",
                f"`fallback` returns {shown(', '.join(portion.names))}",
                hint=f"it has to return `{self._key}` and the value",
            )
        key = names.index(self._key.lower())
        return key, 1 - key
