from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from headgate.config import load_pipeline
from headgate.workflow.plan import WorkflowPlan

_HERE = Path(__file__).parent

Change = Callable[[dict[str, object]], None]


@pytest.fixture
def games_on_databricks(tmp_path: Path) -> Callable[..., WorkflowPlan]:
    """The plan of the games pipeline, maybe with changes to its file."""

    def plan(*changes: Change) -> WorkflowPlan:
        file = tmp_path / "games.yaml"
        shutil.copy(_HERE / "games_on_databricks.yaml", file)
        shutil.copy(_HERE / "wrapper.proto", tmp_path)
        if changes:
            written = yaml.safe_load(file.read_text())
            for change in changes:
                change(written)
            file.write_text(yaml.safe_dump(written, sort_keys=False))
        return WorkflowPlan.of(load_pipeline(file))

    return plan
