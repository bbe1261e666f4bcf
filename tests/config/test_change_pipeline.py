from __future__ import annotations

import pickle
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from headgate.config import (
    Catalog,
    Contract,
    Datastream,
    Duration,
    Expectation,
    Files,
    GoldQuery,
    Grant,
    InvalidPipeline,
    Maintain,
    Merge,
    Mode,
    PipelineConfig,
    Secret,
    Size,
    Storage,
    Task,
    Workflow,
    load_pipeline,
)
from headgate.config.model import fields_by_key
from headgate.config.pipeline import RECORD_KEYS
from headgate.config.schedule import Schedule

SMALL = """\
name: shop
source: {files: {path: ./landing}}
envelope: datastream
lake: ./lake
"""
WHOLE = """\
name: shop
source:
  files:
    path: s3://bucket/landing
    include: ["shop.*", "crm.customers"]
    exclude: ["*.audit_*"]
    start: 2026-11-01
    files_per_batch: 10
    bytes_per_batch: 1g
    settle: 1h
envelope:
  datastream:
    keys: {shop.visits: [visitor, at]}
    lineages: ["log:mysql-bin", "gtid:3e11fa47-71ca-11e1-9e33-c80aa9429562"]
lake: file:///data/lake
checkpoint: ../checkpoint
maintain: {file_size: 128 MB, keep: 2 days, max_versions: 500}
storage: {endpoint: "https://store:9000/", region: eu, access_key: env:KEY, secret_key: file:key}
catalog: {name: sales.shop, in: main}
grants:
  - {to: analysts, tables: gold_*}
  - {to: loaders, tables: [bad_changes, "*_then"], privileges: [select, all_privileges]}
workflow: {schedule: hourly, tasks: {land: land, check: {do: verify, after: land}}}
change_log: "changes_{schema}_{table}"
merged: "{table}"
history: "{table}_then"
merge: {every: 5m, metadata: false, horizon: 90d, spark_above: 10 GB}
quarantine: bad_changes
ledger: journal
contract: freeze
expect: {"changes_shop_*": {has_id: id IS NOT NULL}}
gold: {"gold_{route}_rows": SELECT count(*) AS number FROM merged}
max_tables: 1000
max_file_bytes: 64 MB
trigger: 1 minute
commit: spark
spark: {spark.driver.memory: 2g}
"""

Write = Callable[[str], Path]


def build(**fields: Any) -> PipelineConfig:
    small = {"name": "shop", "source": Files(path="./landing"), "envelope": Datastream()}
    return PipelineConfig(**{**small, "lake": "./lake", **fields})


def load(path: Path) -> PipelineConfig:
    pipeline = load_pipeline(path)
    assert pipeline.lands_changes
    return pipeline


def test_change_pipeline_has_defaults(write: Write) -> None:
    path = write(SMALL)
    folder = path.parent
    assert {key: value for key, value in load(path) if key not in RECORD_KEYS} == {
        "name": "shop",
        "source": Files(
            path=str(folder / "landing"),
            include=(),
            exclude=(),
            start=None,
            files_per_batch=1000,
            bytes_per_batch=Size.parse("512 MB"),
            settle=Duration(minutes=10),
        ),
        "envelope": Datastream(keys={}, lineages=()),
        "lake": str(folder / "lake"),
        "checkpoint": str(folder / "lake/_checkpoints/shop"),
        "storage": Storage(),
        "maintain": None,
        "workflow": None,
        "catalog": None,
        "grants": (),
        "quarantine_table": "quarantine",
        "ledger": "ledger",
        "contract": Contract(),
        "expect": {},
        "gold": {},
        "max_tables": 2000,
        "trigger": Duration(seconds=10),
        "commit": "auto",
        "spark": {},
        "change_log": "log_{database}_{table}",
        "merged": "{database}_{table}",
        "history": None,
        "merge": Merge(
            every=None,
            metadata=True,
            horizon=Duration(days=3650),
            spark_above=Size.parse("2 GB"),
        ),
        "max_file_bytes": Size.parse("1 GB"),
    }


def test_change_pipeline_reads_every_key(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(WHOLE)
    monkeypatch.chdir(path.parent)
    assert load(path) == PipelineConfig(
        name="shop",
        source=Files(
            path="s3://bucket/landing",
            include=["shop.*", "crm.customers"],
            exclude=["*.audit_*"],
            start=datetime(2026, 11, 1, tzinfo=UTC),
            files_per_batch=10,
            bytes_per_batch=Size.parse("1 GB"),
            settle=Duration(hours=1),
        ),
        envelope=Datastream(
            keys={"shop.visits": ["visitor", "at"]},
            lineages=["log:mysql-bin", "gtid:3e11fa47-71ca-11e1-9e33-c80aa9429562"],
        ),
        lake="file:///data/lake",
        checkpoint="../checkpoint",
        maintain=Maintain(file_size=Size.parse("128 MB"), keep=Duration(days=2), max_versions=500),
        storage=Storage(
            endpoint="https://store:9000",
            region="eu",
            access_key=Secret.parse("env:KEY"),
            secret_key=Secret.parse("file:key"),
        ),
        catalog=Catalog(name="sales.shop", in_="main"),
        grants=[
            Grant(to="analysts", tables="gold_*", privileges="SELECT"),
            Grant(
                to="loaders",
                tables=["bad_changes", "*_then"],
                privileges=["SELECT", "ALL PRIVILEGES"],
            ),
        ],
        workflow=Workflow(
            schedule=Schedule.parse("0 * * * *"),
            tasks={"land": Task(do="land"), "check": Task(do="verify", after=("land",))},
        ),
        change_log="changes_{schema}_{table}",
        merged="{table}",
        history="{table}_then",
        merge=Merge(
            every=Duration(minutes=5),
            metadata=False,
            horizon=Duration(days=90),
            spark_above=Size.parse("10 GB"),
        ),
        quarantine="bad_changes",
        ledger="journal",
        contract=Contract(tables=Mode.FREEZE, columns=Mode.FREEZE, types=Mode.FREEZE),
        expect={"changes_shop_*": {"has_id": Expectation(rule="id IS NOT NULL")}},
        gold={"gold_{route}_rows": GoldQuery(sql="SELECT count(*) AS number FROM merged")},
        max_tables=1000,
        max_file_bytes=Size.parse("64 MB"),
        trigger=Duration(minutes=1),
        commit="spark",
        spark={"spark.driver.memory": "2g"},
    )


def test_whole_file_names_every_key() -> None:
    keys = {line.split(":")[0] for line in WHOLE.splitlines() if not line.startswith(" ")}
    assert keys == set(fields_by_key(PipelineConfig)) - {*RECORD_KEYS}


def test_change_pipeline_built_in_python_equals_the_loaded_one(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(SMALL)
    monkeypatch.chdir(path.parent)
    assert build() == load(path)
    assert build(history="h_{table}") != load(path)
    assert (build().file, load(path).file) == (None, str(path))


def test_change_pipeline_survives_pickling(write: Write) -> None:
    pipeline = load(write(WHOLE))
    assert pickle.loads(pickle.dumps(pipeline)) == pipeline


@pytest.mark.parametrize(
    "written", ["datastream", "{datastream: }", "{datastream: {}}", "{datastream: {keys: {}}}"]
)
def test_envelope_may_be_given_as_a_word(written: str, write: Write) -> None:
    assert load(write(SMALL.replace("datastream", written))).envelope == Datastream()


def test_merged_tables_may_be_left_out(write: Write) -> None:
    assert load(write(f"{SMALL}merged: null\n")).merged is None
    merge = "merge: {every: 1h}\n"
    assert load(write(f"{SMALL}merged: null\nhistory: h_{{table}}\n{merge}")).merged is None


@pytest.mark.parametrize(
    ("written", "start"),
    [
        (date(2026, 11, 1), datetime(2026, 11, 1, tzinfo=UTC)),
        ("2026-11-01", datetime(2026, 11, 1, tzinfo=UTC)),
        ("2026-11-01 12:30:00", datetime(2026, 11, 1, 12, 30, tzinfo=UTC)),
        ("2026-11-01T12:30:00+01:00", datetime(2026, 11, 1, 11, 30, tzinfo=UTC)),
        (
            datetime(2026, 11, 1, 12, tzinfo=timezone(timedelta(hours=-2))),
            datetime(2026, 11, 1, 14, tzinfo=UTC),
        ),
        (None, None),
    ],
)
def test_files_start_at_a_date_or_a_time(written: Any, start: datetime | None) -> None:
    assert Files(path="./landing", start=written).start == start


def test_files_are_chosen_by_patterns_in_any_case() -> None:
    files = Files(path="./landing", include=["shop.*", "CRM.customers"], exclude=["*.audit_??"])
    names = ["shop.orders", "Shop.Orders", "crm.CUSTOMERS", "crm.orders", "shop.AUDIT_01"]
    assert [name for name in names if files.takes(name)] == names[:3]
    everything = Files(path="./landing", exclude=["*.audit"])
    assert everything.takes("shop.orders")
    assert not everything.takes("shop.audit")


def test_datastream_finds_the_declared_key_of_a_table() -> None:
    datastream = Datastream(keys={"shop.visits": ["visitor", "at"], "shop.*": ["id"]})
    assert datastream.key_of("Shop.Visits") == ("visitor", "at")
    assert datastream.key_of("shop.pages") == ("id",)
    assert datastream.key_of("crm.pages") is None


def test_lineages_are_normalized() -> None:
    server = "3E11FA47-71ca-11e1-9e33-c80aa9429562"
    datastream = Datastream(lineages=["log:Mysql-Bin", f"gtid:{server}", "gtid:007", "gtid:0"])
    assert datastream.lineages == ("log:Mysql-Bin", f"gtid:{server.lower()}", "gtid:7", "gtid:0")
    with pytest.raises(InvalidPipeline, match="duplicates"):
        Datastream(lineages=["gtid:7", "gtid:07"])


@pytest.mark.parametrize(
    ("path", "lake"),
    [
        ("/data", "/data/lake"),
        ("/data/lake", "/data/lake"),
        ("file:///data", "/data/lake"),
        ("/data/", "file:/data/lake"),
    ],
)
def test_lake_inside_the_change_files_is_rejected(path: str, lake: str) -> None:
    with pytest.raises(InvalidPipeline, match="`lake` is inside `source"):
        build(source=Files(path=path), lake=lake)


@pytest.mark.parametrize("path", ["/data/landing", "/data/lake/landing", "/da", "s3://data"])
def test_change_files_may_be_anywhere_else(path: str) -> None:
    assert build(source=Files(path=path), lake="/data/lake").change_files.path == path


def test_pipeline_rejects_the_keys_of_the_other_kind_of_source() -> None:
    with pytest.raises(InvalidPipeline, match="`registry` does not apply here"):
        build(registry="./schemas")
    with pytest.raises(InvalidPipeline, match=r"`source` needs one of .*, not a `Datastream`"):
        build(source=Datastream())
