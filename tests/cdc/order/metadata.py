"""Short constructors for the metadata of changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from headgate.envelopes.datastream.changes import METADATA

MYSQL = "mysql-cdc-binlog"
ORACLE = "oracle-cdc-logminer"
POSTGRESQL = "postgresql-cdc"
SQL_SERVER = "sqlserver-cdc"

Fields = dict[str, Any]


def metadata(changes: Sequence[Fields]) -> pa.Table:
    """Return changes given by the names of METADATA without their `_`; missing ones are null."""
    rows = [{f"_{name}": value for name, value in change.items()} for change in changes]
    assert all(set(row) <= set(METADATA.names) for row in rows)
    return pa.Table.from_pylist(rows, METADATA)


def mysql(file: str | None, position: int | None, **more: Any) -> Fields:
    return _change(MYSQL, log_file=file, log_position=position) | more


def oracle(scn: int | None, rs_id: str | None, ssn: int | None, **more: Any) -> Fields:
    return _change(ORACLE, scn=scn, rs_id=rs_id, ssn=ssn) | more


def postgresql(lsn: str | None, **more: Any) -> Fields:
    return _change(POSTGRESQL, lsn=lsn) | more


def sqlserver(lsn: str | None, **more: Any) -> Fields:
    return _change(SQL_SERVER, lsn=lsn) | more


def backfill(micros: int | None, **more: Any) -> Fields:
    return _change("mysql-backfill-fulldump", source_timestamp=micros, log_file="") | more


def _change(read_method: str, **more: Any) -> Fields:
    return {"read_method": read_method, "change_type": "UPDATE", "uuid": "u", **more}
