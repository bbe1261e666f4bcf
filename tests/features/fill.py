"""Try the cells of the page of features that were not tried yet, and write what is right.

    python -m tests.features.fill [SECONDS [FEATURE …]]

What is wrong is printed, and stays empty.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from time import monotonic

import yaml

from headgate.engine.session import spark_session
from tests.features.cells import Impossible, Matrix
from tests.features.operations import OPERATIONS
from tests.features.tables import FEATURES

CELLS = Path(__file__).parents[2] / "docs" / "features" / "cells.yaml"


def main(seconds: float, features: list[str]) -> None:
    head, _, text = CELLS.read_text().partition("\n\n")
    known: dict[str, dict[str, str]] = yaml.safe_load(text) or {}
    interpreted = {
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    }
    spark = spark_session("features", interpreted)
    began = monotonic()
    with tempfile.TemporaryDirectory() as folder:
        matrix = Matrix(spark, Path(folder))
        for feature, operation in ((f, o) for f in features for o in OPERATIONS):
            if operation in known.get(feature, {}) or monotonic() - began > seconds:
                continue
            try:
                outcome = matrix.outcome(feature, operation)
            except Impossible:
                outcome = "impossible"
            except Exception as error:  # of any kind: the next cell may be right
                print(f"{feature} | {operation}: {type(error).__name__}: {error}", flush=True)
                continue
            known.setdefault(feature, {})[operation] = outcome
            ordered = {
                name: {o: known[name][o] for o in OPERATIONS if o in known[name]}
                for name in FEATURES
                if name in known
            }
            CELLS.write_text(f"{head}\n\n{yaml.safe_dump(ordered, sort_keys=False)}")
    spark.stop()


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 1e9, sys.argv[2:] or [*FEATURES])
