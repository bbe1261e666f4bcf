from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from headgate.errors import LandingError
from headgate.models.registry import LoadedModel, ModelRegistry, model_name


class _Doubles:
    def predict(self, frame: pd.DataFrame) -> list[float]:
        return [2.0 * value for value in frame["x"]]


class _TooFew:
    def predict(self, frame: pd.DataFrame) -> list[float]:
        return [1.0]


def test_model_that_returns_numbers_has_no_range() -> None:
    found = LoadedModel("models:/a/1", _Doubles()).predict(pd.DataFrame({"x": [1, 2]}))
    assert found["prediction"].tolist() == [2.0, 4.0]
    assert found[["low", "high"]].isna().all(axis=None)


def test_model_that_returns_too_few_rows_is_refused() -> None:
    with pytest.raises(LandingError, match="returned 1 rows for 2"):
        LoadedModel("models:/a/1", _TooFew()).predict(pd.DataFrame({"x": [1, 2]}))


def test_store_that_does_not_exist_has_no_models_and_is_not_created(tmp_path: Path) -> None:
    registry = ModelRegistry(f"sqlite:///{tmp_path / 'mlflow.db'}")
    assert registry.current_version("models:/a@serving") is None
    assert registry.versions("a") == []
    with pytest.raises(LandingError, match="no model `models:/a@serving`"):
        registry.load_model("models:/a@serving")
    assert list(tmp_path.iterdir()) == []


def test_store_that_is_not_a_database_is_named_with_a_hint(tmp_path: Path) -> None:
    (tmp_path / "mlflow.db").write_text("not a database" * 100)
    registry = ModelRegistry(f"sqlite:///{tmp_path / 'mlflow.db'}")
    with pytest.raises(LandingError, match="models-unavailable") as raised:
        registry.versions("a")
    assert "not a database" in raised.value.message
    assert "MLFLOW_TRACKING_URI" in (raised.value.hint or "")


def test_server_that_is_down_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with pytest.raises(LandingError, match="models-unavailable") as raised:
        ModelRegistry("http://user:secret@localhost:1").current_version("models:/a@serving")
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize("uri", ["models:/a-b@serving", "models:/a-b/3"])
def test_name_of_a_model(uri: str) -> None:
    assert model_name(uri) == "a-b"
