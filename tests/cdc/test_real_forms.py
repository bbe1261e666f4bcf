"""Files in the forms that real sources write: the log and the merged rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.cdc.change_lake import ChangeLake
from tests.envelopes.datastream.test_real_forms import BY_GTID, ORACLE, source
from tests.envelopes.datastream.writing import MYSQL, avro, change, json_change, lines, schema

SERVER = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
KEYS = {"primary_keys": ["null", {"type": "array", "items": "string"}]}
POSTGRESQL = KEYS | {
    "schema": "string",
    "table": "string",
    "is_deleted": ["null", "boolean"],
    "change_type": ["null", "string"],
    "tx_id": ["null", "long"],
    "lsn": ["null", "string"],
}
SQL_SERVER = POSTGRESQL | {"database": "string"}


class SourceFiles:
    """Writes and lands change files of one table, with the metadata of one kind of source."""

    def __init__(self, folder: Path, kinds: dict[str, Any], **same: Any) -> None:
        self.lake = ChangeLake(folder)
        self._folder = folder
        self._kinds, self._same = kinds, same
        self._count = 0

    def change(
        self, method: str, kind: str | None, row: tuple[int | None, str | None], **place: Any
    ) -> dict[str, Any]:
        self._count += 1
        values = dict.fromkeys(self._kinds) | self._same | {"change_type": kind} | place
        payload = dict(zip(("id", "name"), row, strict=True))
        event = change(payload, source(**values), read_method=method, uuid=f"uuid-{self._count}")
        return event | {"sort_keys": []}

    def land(self, *changes: dict[str, Any]) -> None:
        self._count += 1
        path = self._folder / f"{self._count}.avro"
        path.write_bytes(avro(schema(source=self._kinds), changes))
        self.lake.land_files([path])

    def names(self, table: str) -> dict[int, str]:
        return {row["id"]: row["name"] for row in self.lake.rows(table)}

    def rejections(self) -> list[tuple[str, str]]:
        if not (self.lake.path / "quarantine").exists():
            return []
        return [(row["reason"], row["detail"]) for row in self.lake.rows("quarantine")]


def mysql(folder: Path) -> SourceFiles:
    return SourceFiles(folder, MYSQL, table="users", database="shop", primary_keys=["id"])


def mysql_by_gtid(folder: Path) -> SourceFiles:
    return SourceFiles(folder, BY_GTID, table="users", database="shop", primary_keys=["id"])


def oracle(folder: Path, **more: Any) -> SourceFiles:
    kinds = ORACLE | KEYS
    return SourceFiles(folder, kinds, schema="WINE", table="users", database="shop", **more)


def postgresql(folder: Path) -> SourceFiles:
    return SourceFiles(folder, POSTGRESQL, schema="shop", table="users", primary_keys=["id"])


def sql_server(folder: Path) -> SourceFiles:
    kinds = {name: kind for name, kind in SQL_SERVER.items() if name != "primary_keys"}
    kinds["replication_index"] = KEYS["primary_keys"]
    same = {"schema": "dbo", "table": "users", "database": "shop"}
    return SourceFiles(folder, kinds, replication_index=["id"], **same)


PLACES: dict[str, Any] = {
    "mysql-cdc-binlog": (mysql, lambda at: {"log_file": "mysql-bin.000009", "log_position": at}),
    "cdc of mysql": (
        mysql_by_gtid,
        lambda at: {
            "gtid": f"{SERVER}:{at}",
            "binlog_file": "mysql-bin.000009",
            "binlog_position": at,
        },
    ),
    "oracle-cdc-logminer": (
        lambda folder: oracle(folder, primary_keys=["ID"]),
        lambda at: {"scn": at, "rs_id": f" 0x0000d4.000091be.{at:04x} ", "ssn": 0},
    ),
    "cdc of oracle": (
        lambda folder: oracle(folder, primary_keys=["ID"], log_file="/u01/o1_mf_1_212.arc"),
        lambda at: {"scn": at},
    ),
    "postgresql-cdc": (postgresql, lambda at: {"lsn": f"16/{at:X}", "tx_id": 7}),
    "postgres-cdc-wal": (postgresql, lambda at: {"lsn": f"16/{at:X}"}),
    "cdc of postgresql": (postgresql, lambda at: {"lsn": f"16/{at:X}"}),
    "sqlserver-cdc": (sql_server, lambda at: {"lsn": f"00000025:{at:08x}:0001"}),
    "sqlserver-cdc-logbased": (sql_server, lambda at: {"lsn": f"0x00000025{at:08X}0001"}),
    "cdc of sqlserver": (sql_server, lambda at: {"lsn": f"00000025:{at:08x}:0001"}),
}


@pytest.mark.parametrize("form", PLACES)
def test_late_changes_and_new_keys_of_every_source_are_merged(form: str, tmp_path: Path) -> None:
    make, place = PLACES[form]
    method = form.partition(" ")[0]
    files = make(tmp_path)
    files.land(
        files.change(method, "UPDATE-DELETE", (2, "Bea"), is_deleted=False, **place(110)),
        files.change(method, "UPDATE-INSERT", (4, "Bea"), is_deleted=False, **place(110)),
        files.change(method, "DELETE", (3, "Cem"), is_deleted=True, **place(12)),
        files.change(method, "UPDATE", (1, "Ada the second"), is_deleted=False, **place(99)),
    )
    files.land(
        files.change(method, "INSERT", (3, "Cem"), is_deleted=False, **place(9)),
        files.change(method, "INSERT", (2, "Bea"), is_deleted=False, **place(3)),
        files.change("backfill", None, (1, "Ada"), is_deleted=False),
        files.change("backfill", None, (5, "Eve"), is_deleted=False),
    )
    assert files.rejections() == []
    assert len(files.lake.rows("log_shop_users")) == 8
    assert files.names("shop_users") == {1: "Ada the second", 4: "Bea", 5: "Eve"}


@pytest.mark.parametrize(
    "method", ["mysql-backfill-fulldump", "mysql-backfill-incremental", "oracle_dump", "backfill"]
)
def test_backfill_of_any_method_lands_below_changes(method: str, tmp_path: Path) -> None:
    files = mysql(tmp_path)
    at = {"log_file": "mysql-bin.000009", "log_position": 4}
    files.land(
        files.change("mysql-cdc-binlog", "UPDATE", (1, "new"), **at),
        files.change(method, None, (1, "old"), log_file="", log_position=0),
    )
    assert files.names("shop_users") == {1: "new"}


def test_key_in_later_files_replaces_row_ids(tmp_path: Path) -> None:
    files = oracle(tmp_path)
    method = "oracle-cdc-logminer"
    files.land(
        files.change("oracle-backfill", None, (1, "Ada"), row_id="A", scn=5),
        files.change(method, "INSERT", (2, "Bea"), row_id="B", scn=7),
        files.change(method, "DELETE", (3, "Cem"), row_id="C", scn=8, is_deleted=True),
    )
    assert files.names("shop_users") == {1: "Ada", 2: "Bea"}
    key = {"primary_keys": ["ID"]}
    files.land(
        files.change(method, "UPDATE-DELETE", (2, "Bea"), row_id="B", scn=9, **key),
        files.change(method, "UPDATE-INSERT", (4, "Bea"), row_id="B", scn=9, **key),
    )
    assert files.names("shop_users") == {1: "Ada", 4: "Bea"}
    files.land(
        files.change(method, "INSERT", (3, "late"), row_id="C", scn=6, **key),
        files.change(method, "DELETE", (None, None), row_id="A", scn=10, is_deleted=True, **key),
    )
    assert files.names("shop_users") == {4: "Bea"}
    assert files.rejections() == []


def test_rollback_by_row_id_keeps_the_key(tmp_path: Path) -> None:
    files = oracle(tmp_path)
    method, key = "oracle-cdc-logminer", {"primary_keys": ["ID"]}
    files.land(
        files.change(method, "INSERT", (1, "Ada"), row_id="A", scn=5, **key),
        files.change(method, "INSERT", (2, "Bea"), scn=5, **key),
    )
    gone = {"row_id": "A", "scn": 8, "is_deleted": True}
    files.land(files.change("oracle-supplementation", "DELETE", (None, None), **gone))
    assert files.names("shop_users") == {2: "Bea"}
    assert files.rejections() == []


def test_table_without_a_key_keeps_every_change(tmp_path: Path) -> None:
    files = postgresql(tmp_path)
    without_key: list[list[str] | None] = [None, []]
    for keys in without_key:
        files.land(
            files.change("postgresql-cdc", "INSERT", (1, "x"), lsn="0/1", primary_keys=keys),
            files.change("postgresql-cdc", "INSERT", (1, "x"), lsn="0/2", primary_keys=keys),
        )
    assert [row["name"] for row in files.lake.rows("shop_users")] == ["x"] * 4


UNPLACED = "neither the read method ({}) nor a position identifies a supported database"
NO_LSN = "the lsn is missing or does not have the form 00000025:00000728:0003"


@pytest.mark.parametrize(
    ("method", "place", "detail"),
    [
        ("cdc", {}, UNPLACED.format("cdc")),
        ("salesforce-cdc", {"lsn": "00000025:00000728:0003"}, UNPLACED.format("salesforce-cdc")),
        ("sqlserver-cdc", {}, NO_LSN),
        ("sqlserver-cdc", {"lsn": "37:1832:3"}, NO_LSN),
        ("cdc", {"lsn": "37:1832:3"}, NO_LSN),
    ],
)
def test_change_without_a_position_is_rejected_with_the_reason(
    method: str, place: dict[str, str], detail: str, tmp_path: Path
) -> None:
    files = sql_server(tmp_path)
    files.land(files.change(method, "INSERT", (1, "Ada"), **place))
    assert files.rejections() == [("order_unknown", detail)]


def test_json_file_of_several_sources_lands_in_their_tables(tmp_path: Path) -> None:
    def event(uuid: str, method: str, **values: Any) -> dict[str, Any]:
        files = json_change(uuid=uuid, read_method=method, sort_keys=[1])
        timestamps = {"read_timestamp": "2024-05-10 05:36:59.578123456"}
        return {**files, **timestamps, "source_metadata": {"change_type": "INSERT", **values}}

    key: dict[str, Any] = {"primary_keys": ["id"]}
    events = [
        event(
            "a", "mysql-cdc-binlog", database="m", table="t", log_file="b.1", log_position=4, **key
        ),
        event("b", "cdc", database="g", table="t", binlog_file="b.1", binlog_position="4", **key),
        event("c", "oracle-cdc-logminer", database="o", schema="HR", table="t", scn="77", **key),
        event("d", "postgresql-cdc", schema="p", table="t", lsn="16/CB002DB0", tx_id=5, **key),
        event(
            "e",
            "sqlserver-cdc",
            database="s",
            schema="dbo",
            table="t",
            lsn="00000025:00000728:0003",
            replication_index=["ID"],
        ),
    ]
    lake = ChangeLake(tmp_path)
    path = tmp_path / "all.jsonl"
    path.write_bytes(lines(*events))
    lake.land_files([path])
    for name in "mgops":
        (row,) = lake.rows(f"log_{name}_t")
        assert row["_order"]
        assert [(row["id"], row["name"]) for row in lake.rows(f"{name}_t")] == [(1, "Ada")]
    assert not (lake.path / "quarantine").exists()
