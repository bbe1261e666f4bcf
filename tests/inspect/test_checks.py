from __future__ import annotations

import json
from pathlib import Path

import pytest
from deltalake import write_deltalake

from headgate.config import Kafka, PipelineConfig, Security
from headgate.errors import SetupError
from headgate.inspect.doctor import (
    Check,
    CheckState,
    check_all,
    check_cluster,
    check_disk,
    check_lake,
    check_source,
    tried,
)
from headgate.schema.origin import RECORD_COLUMNS
from tests.inspect.small_lake import SmallLake


def test_a_check_that_breaks_is_one_that_failed() -> None:
    def broken() -> Check:
        raise ZeroDivisionError("by zero")

    def refused() -> Check:
        raise SetupError("java-missing", "there is no Java", hint="install one")

    assert tried("a", broken) == Check("a", CheckState.FAIL, "ZeroDivisionError: by zero")
    assert tried("b", refused) == Check("b", CheckState.FAIL, "there is no Java", "install one")


def test_disk_is_checked_where_a_folder_would_be_made(tmp_path: Path) -> None:
    assert str(tmp_path) in check_disk(tmp_path / "not" / "there" / "yet").detail


def test_a_broken_pipeline_file_does_not_stop_the_other_checks(tmp_path: Path) -> None:
    (tmp_path / "games.yaml").write_text("name: 1\n")
    checks = {each.name: each for each in check_all(str(tmp_path / "games.yaml"), tmp_path)}
    assert checks["pipeline file"].state == "fail"
    assert checks["pipeline file"].fix == f"headgate check {tmp_path}/games.yaml"
    assert {"Python", "Java", "disk", "local services"} <= checks.keys()


def test_source_checks_name_what_is_missing(empty_lake: SmallLake) -> None:
    checks = _states(check_source(empty_lake.pipeline))
    assert checks == {"source table": "fail", "registry": "warn"}


def test_source_checks_are_well_when_all_is_there(empty_lake: SmallLake) -> None:
    empty_lake.register(1, versions=[1])
    write_deltalake(str(empty_lake.folder / "inbox"), RECORD_COLUMNS.empty_table())
    checks = _states(check_source(empty_lake.pipeline))
    assert checks == {"source table": "ok", "registry": "ok"}


def test_a_missing_secret_is_named_and_a_silent_broker_too(
    empty_lake: SmallLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THERE", "hidden")
    security = Security.model_validate(
        {
            "protocol": "SASL_PLAINTEXT",
            "mechanism": "PLAIN",
            "username": "env:THERE",
            "password": "env:NOT_THERE",
        }
    )
    source = Kafka(servers="127.0.0.1:1", topics=["games"], security=security)
    pipeline = empty_lake.pipeline.model_copy(update={"source": source})
    checks = {each.name: each for each in check_source(pipeline)}
    assert checks["secret env:THERE"].state == "ok"
    assert checks["secret env:NOT_THERE"].state == "fail"
    assert checks["broker"].state == "fail"
    assert "hidden" not in str(checks)


def test_a_lake_that_fits_its_checkpoint_is_well(lake: SmallLake) -> None:
    _write_checkpoint(lake.pipeline, "query", last=1)
    checks = {each.name: each for each in check_lake(lake.pipeline)}
    assert checks["checkpoint"].detail == "matches the ledger; batch 2 is next"
    assert {each.state for each in checks.values()} == {CheckState.OK}


def test_a_reset_checkpoint_is_told_with_its_way_on(empty_lake: SmallLake) -> None:
    empty_lake.register(1, versions=[1])
    empty_lake.land(10)
    checks = {each.name: each for each in check_lake(empty_lake.pipeline)}
    assert checks["checkpoint"].state == "fail"
    assert "--from-ledger" in (checks["checkpoint"].fix or "")


def test_a_foreign_checkpoint_is_told(empty_lake: SmallLake) -> None:
    empty_lake.register(1, versions=[1])
    empty_lake.land(10)
    _write_checkpoint(empty_lake.pipeline, "another", last=4)
    checks = {each.name: each for each in check_lake(empty_lake.pipeline)}
    assert checks["checkpoint"].state == "fail"
    assert "different stream" in checks["checkpoint"].detail


def test_waiting_tables_are_a_warning(tmp_path: Path) -> None:
    lake = SmallLake(tmp_path, refused=["silver_chess"])
    lake.register(1, versions=[1])
    lake.land(10, bad_share=0)
    _write_checkpoint(lake.pipeline, "query", last=0)
    checks = {each.name: each for each in check_lake(lake.pipeline)}
    assert checks["pending tables"].state == "warn"
    assert "silver_chess" in checks["pending tables"].detail


def test_folders_that_executors_must_see_are_a_warning(empty_lake: SmallLake) -> None:
    pipeline = empty_lake.pipeline
    assert check_cluster(pipeline) == []
    on_cluster = pipeline.model_copy(update={"spark": {"spark.master": "spark://main:7077"}})
    (check,) = check_cluster(on_cluster)
    assert check.state == "warn"
    assert f"`lake` at {pipeline.lake}" in check.detail
    assert "`registry.folder`" in check.detail


def _states(checks: list[Check]) -> dict[str, str]:
    return {each.name: str(each.state) for each in checks}


def _write_checkpoint(pipeline: PipelineConfig, query_id: str, last: int) -> None:
    folder = Path(pipeline.checkpoint)
    for name in ("offsets", "commits"):
        (folder / name).mkdir(parents=True, exist_ok=True)
        for batch in range(last + 1):
            (folder / name / str(batch)).write_text("v1\n{}\n{}\n")
    (folder / "metadata").write_text(json.dumps({"id": query_id}))
