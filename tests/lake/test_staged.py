from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from headgate.lake.staged import StagedFile
from tests.lake.staged import staged

SCHEMA = pa.schema(
    [
        ("a", pa.decimal128(20, 0)),
        ("b", pa.list_(pa.struct([("x", pa.timestamp("us", "UTC"))]))),
        ("c", pa.map_(pa.string(), pa.binary())),
    ]
)


def test_file_round_trips_as_json() -> None:
    file = StagedFile(
        table="silver_chess",
        path="route=x/part-1.parquet",
        size=1 << 40,
        rows=3,
        statistics='{"numRecords": 3}',
        schema_bytes=SCHEMA.serialize().to_pybytes(),
        route="Chess \ud800 'é'",
        schema_ids=(1, 7),
        partition={"route": "Chess"},
        reasons={"null_value": 2},
    )
    back = StagedFile.from_json(file.to_json())
    assert back == file
    assert back.schema == SCHEMA


def test_file_with_only_required_fields_round_trips_as_json(tmp_path: Path) -> None:
    file = staged(tmp_path, "chess", {"n": [1]}, schema_ids=())
    assert StagedFile.from_json(file.to_json()) == file
