"""Append to a table of Spark by Kernel, in an object store.

A process of its own: the session of the other tests has no settings for an object store.
"""

from __future__ import annotations

import json
import sys

import pyarrow as pa

from headgate.config import Secret, Storage
from headgate.config.storage import declare_storage
from headgate.engine.session import spark_session
from headgate.lake.choose_committer import choose_committer
from headgate.lake.commit import Commit, Mark
from headgate.lake.log import LogEntry
from headgate.lake.parquet import stage_rows


def main(lake: str, keys: Storage) -> None:
    declare_storage(keys, lake)
    spark = spark_session("kernel", keys.for_spark(lake), ("s3",))
    table = f"delta.`{lake}/t`"
    spark.sql(
        f"CREATE TABLE {table} (n BIGINT) USING delta"
        " TBLPROPERTIES ('delta.enableRowTracking'='true', 'delta.checkpointInterval'='2')"
    )
    spark.sql(f"INSERT INTO {table} VALUES (1)")
    committer = choose_committer("auto", lambda: spark, lake)
    for number in (2, 3):
        state = committer.state("t", "app")
        assert state is not None
        file = stage_rows(lake, "t", pa.table({"n": pa.array([number], pa.int64())}))
        marks, required = (Mark("app", number),), {"app": state.marked}
        version = committer.commit(
            Commit("t", state.schema, (file,), marks, required_marks=required)
        )
        (info, *_) = LogEntry.read(f"{lake}/t", version).actions
        assert info["commitInfo"]["engineInfo"].startswith("Kernel"), info
    spark.sql(f"DELETE FROM {table} WHERE n = 2")
    rows = spark.sql(f"SELECT n, _metadata.row_id FROM {table} ORDER BY n").collect()
    print(json.dumps([tuple(row) for row in rows]))


if __name__ == "__main__":
    url, endpoint, key, secret = sys.argv[1:]
    settings = Storage(
        endpoint=endpoint,
        access_key=Secret.parse(f"file:{key}"),
        secret_key=Secret.parse(f"file:{secret}"),
    )
    main(url, settings)
