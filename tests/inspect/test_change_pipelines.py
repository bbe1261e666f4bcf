"""What can be asked of both kinds of pipelines is answered for change files too."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from deltalake import write_deltalake

from headgate.config import PipelineConfig, Secret, load_pipeline
from headgate.examples import find_example
from headgate.inspect import doctor as check_services
from headgate.inspect.check import find_mistakes
from headgate.inspect.doctor import check_lake, check_source
from headgate.inspect.status import read_status
from headgate.inspect.tables import kind_of, landed_tables, read_tables
from headgate.lab.database import Database
from headgate.lake.ledger import Ledger
from headgate.schema.origin import SOURCE_COLUMNS


@pytest.fixture
def pipeline(tmp_path: Path) -> PipelineConfig:
    file = tmp_path / "shop.yaml"
    file.write_text(find_example("shop").text(), "utf-8")
    assert find_mistakes(file) == []
    found = load_pipeline(file)
    assert found.lands_changes
    return found


def test_nothing_has_landed_at_first(pipeline: PipelineConfig) -> None:
    status = read_status(pipeline)
    assert (status.pipeline, status.batches, status.rows, status.run) == ("shop", 0, 0, None)
    assert read_tables(pipeline) == []
    assert landed_tables(pipeline) == []


def test_status_is_read_from_the_ledger(pipeline: PipelineConfig) -> None:
    Ledger(pipeline.lake, pipeline.ledger, pipeline.name).start("query", 0)
    status = read_status(pipeline)
    assert (status.batches, status.tables, status.pending) == (0, 0, ())


@pytest.mark.parametrize(
    ("table", "kind"),
    [
        ("log_shop_orders", "log"),
        ("shop_orders", "merged"),
        ("history_shop_orders", "history"),
        ("quarantine", "quarantine"),
        ("_files", "files"),
    ],
)
def test_tables_are_of_their_kind(pipeline: PipelineConfig, table: str, kind: str) -> None:
    assert kind_of(pipeline, table) == kind


def test_change_logs_are_found_in_the_lake(pipeline: PipelineConfig) -> None:
    for table in ("log_shop_orders", "shop_orders", "quarantine"):
        write_deltalake(f"{pipeline.lake}/{table}", SOURCE_COLUMNS.empty_table())
    assert landed_tables(pipeline) == ["log_shop_orders"]


def test_doctor_looks_for_the_folder_and_asks_no_registry(
    pipeline: PipelineConfig, tmp_path: Path
) -> None:
    (check,) = check_source(pipeline)
    assert (check.name, check.state, check.fix) == (
        "change files",
        "fail",
        "check `source.files.path`, or create it",
    )
    (tmp_path / "landing").mkdir()
    (check,) = check_source(pipeline)
    assert check.state == "ok"
    assert {each.state for each in check_lake(pipeline)} == {"ok"}


def test_doctor_asks_for_secrets_of_spark(pipeline: PipelineConfig) -> None:
    settings = {"spark.hadoop.fs.s3a.secret.key": Secret("env", "NOT_THERE")}
    changed = pipeline.model_copy(update={"spark": settings})
    checks = {each.name: each.state for each in check_source(changed)}
    assert checks["secret env:NOT_THERE"] == "fail"


@pytest.mark.parametrize(("answers", "state"), [(True, "ok"), (False, "fail")])
def test_doctor_asks_the_local_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answers: bool, state: str
) -> None:
    found = Database(tmp_path, 3306, 4711)
    monkeypatch.setattr(check_services, "find_database", lambda _: found)
    monkeypatch.setattr(check_services, "database_answers", lambda *_: answers)
    checks = {each.name: each for each in check_services.check_services(tmp_path)}
    assert checks["local database"].state == state
    assert found.address in checks["local database"].detail
    assert checks["port 3306"].detail == "used by the local database"


def test_doctor_tells_of_a_database_that_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = SimpleNamespace(pid=4711)
    monkeypatch.setattr(check_services, "recorded_process", lambda *_: gone)
    monkeypatch.setattr(check_services, "find_database", lambda _: None)
    checks = {each.name: each for each in check_services.check_services(tmp_path)}
    assert checks["local database"].state == "warn"
    assert checks["local database"].fix == "headgate up --database"
