"""A change as a record of a change file."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from headgate.simulate.shop.change import Change
from headgate.simulate.shop.datastream_schema import schema_key

_STREAM = "projects/headgate/locations/here/streams/shop"
_READ_AFTER = timedelta(seconds=5)


def datastream_record(change: Change, seed: int) -> dict[str, Any]:
    """For Avro: moments of the record itself are milliseconds, values are as they are."""
    millis = _millis(change.at)
    return {
        "uuid": change_uuid(change, seed),
        "read_timestamp": _millis(change.at + _READ_AFTER),
        "source_timestamp": millis,
        "object": object_name(change),
        "read_method": read_method(change),
        "stream_name": _STREAM,
        "schema_key": schema_key(object_name(change), change.columns),
        "sort_keys": [millis, change.log_file, change.log_position],
        "source_metadata": {
            "table": change.table,
            "database": change.database,
            "primary_keys": list(change.primary_key),
            "log_file": change.log_file,
            "log_position": change.log_position,
            "change_type": change.kind,
            "is_deleted": change.is_deleted,
        },
        "payload": change.values,
    }


def json_record(change: Change, seed: int) -> dict[str, Any]:
    """The same for JSON: moments and dates are ISO text, decimals are numbers."""
    record = datastream_record(change, seed)
    record["read_timestamp"] = _iso(change.at + _READ_AFTER)
    record["source_timestamp"] = _iso(change.at)
    record["payload"] = _plain(change.values)
    return record


def change_uuid(change: Change, seed: int) -> str:
    """The same change has the same name in every file it comes in."""
    key = change.key if change.primary_key else tuple(change.values.values())
    place = (seed, change.database, change.table, change.log_file, change.log_position)
    return str(uuid5(NAMESPACE_URL, repr((place, _millis(change.at), change.kind, key))))


def object_name(change: Change) -> str:
    return f"{change.database}_{change.table}"


def read_method(change: Change) -> str:
    return "mysql-backfill-fulldump" if change.backfill else "mysql-cdc-binlog"


def _plain(values: Mapping[str, object]) -> dict[str, object]:
    plain: dict[str, object] = {}
    for name, value in values.items():
        match value:
            case datetime():
                plain[name] = _iso(value)
            case date():
                plain[name] = value.isoformat()
            case Decimal():
                plain[name] = float(value)
            case _:
                plain[name] = value
    return plain


def _iso(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


def _millis(moment: datetime) -> int:
    return round(moment.timestamp() * 1_000)
