"""A Delta table as a stream of records, with the columns of Kafka records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headgate.config import Delta
from headgate.errors import SourceError
from headgate.lake.files import Identity
from headgate.lake.log import identify_entry
from headgate.lake.tables import is_table, open_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TABLE = "the Delta table"
"""Name of its id."""

_TYPES = {
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "key": "binary",
    "headers": "array<struct<key:string,value:binary>>",
}


class SourceTable:
    """The table of a source: its id, which another one at the same place does not have.

    It is opened again only if the entry of its log that was the newest then is another one now.
    """

    def __init__(self, source: Delta) -> None:
        self._path = source.path
        self._version = 0
        self._entry: Identity | None = None
        self._ids: dict[str, str] = {}

    def ids(self) -> dict[str, str]:
        if self._entry is not None and self._entry == identify_entry(self._path, self._version):
            return self._ids
        table = open_table(self._path)
        if table is None:
            return {}
        self._version = table.version()
        self._entry = identify_entry(self._path, self._version)
        # Opened again, because the entry could already be that of another table.
        again = open_table(self._path)
        self._ids = {} if again is None else {TABLE: str(again.metadata().id)}
        return self._ids


def ids_of_position(position: Any) -> dict[str, str]:
    """Return the id of the table that a position of Spark's counts in."""
    found = position.get("reservoirId") if isinstance(position, dict) else None
    return {TABLE: found} if isinstance(found, str) else {}


def stream_table(spark: SparkSession, source: Delta, start: int | None = None) -> DataFrame:
    """Read the table from `source.start`, or from a given version."""
    from pyspark.sql import functions as F

    if not is_table(source.path):
        raise SourceError(
            "source-missing",
            f"no Delta table at {source.path}",
            hint="check `source.delta.path`; headgate simulate games --to delta creates one",
        )
    version = source.start if start is None else start
    reader = spark.readStream.format("delta").option("maxBytesPerTrigger", str(int(source.batch)))
    if version != "earliest":
        reader = reader.option("startingVersion", str(version))
    rows = reader.load(source.path)
    if "value" not in rows.columns:
        raise SourceError(
            "source-missing",
            f"the Delta table at {source.path} has no column `value`",
            hint="records are read from a binary column `value`; the other columns of Kafka's "
            "records (topic, partition, offset, timestamp, key, headers) are used if present",
        )
    return rows.select(
        *(
            (F.col(name) if name in rows.columns else F.lit(None)).cast(kind).alias(name)
            for name, kind in _TYPES.items()
        )
    )
