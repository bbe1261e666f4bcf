from __future__ import annotations

import json
import subprocess
import sys

from tests.inspect.small_lake import SmallLake

_LOOK = """
import json, sys
from headgate.inspect.plan import read_plan
from headgate.inspect.quarantine import find_quarantined, read_quarantined
from headgate.inspect.schema import read_table_schema
from headgate.inspect.schema_diff import read_schema_diff
from headgate.inspect.status import read_status
from headgate.inspect.tables import read_tables
from headgate.config import load_pipeline
pipeline = load_pipeline(sys.argv[1])
read_status(pipeline), read_tables(pipeline), read_table_schema(pipeline, "chess")
records, _ = read_quarantined(pipeline)
find_quarantined(pipeline, records[0].position)
read_plan(pipeline), read_schema_diff("chess", "chess-value", pipeline)
print(json.dumps([name for name in ("pyspark", "pandas") if name in sys.modules]))
"""


def test_looking_loads_neither_spark_nor_pandas(lake: SmallLake) -> None:
    run = subprocess.run(
        [sys.executable, "-c", _LOOK, str(lake.file)], capture_output=True, text=True, check=True
    )
    assert json.loads(run.stdout) == []
