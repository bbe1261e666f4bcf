"""The page of features is true: rows are right afterwards, or the operation was refused."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from pyspark.sql import SparkSession

from tests.features.cells import Impossible, Matrix
from tests.features.operations import OPERATIONS
from tests.features.tables import FEATURES

CELLS: Mapping[str, Mapping[str, str]] = yaml.safe_load(
    (Path(__file__).parents[2] / "docs" / "features" / "cells.yaml").read_text()
)
WRONG: Mapping[tuple[str, str], str] = {}
"""Cells that are not true yet, and why."""
_QUICK = {
    ("deletion vectors", "merge from its log"),
    ("deletion vectors", "rewind its log"),
    ("deletion vectors", "delete orphans"),
    ("column mapping by name", "merge from its log"),
    ("column mapping by name", "history from its log"),
    ("partitions", "land"),
    ("partitions", "widen"),
    ("row tracking", "land"),
    ("row tracking", "compact"),
    ("change data feed", "merge into"),
    ("append-only", "merge into"),
    ("catalog-managed", "land"),
}
"""Cells that `make test` tries; `make soak` tries all."""


@pytest.fixture(scope="module")
def matrix(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Matrix:
    return Matrix(spark, tmp_path_factory.mktemp("features"))


def _cases() -> list[Any]:
    cases: list[Any] = []
    for cell in ((feature, operation) for feature in CELLS for operation in CELLS[feature]):
        marks = [] if cell in _QUICK else [pytest.mark.soak]
        if cell in WRONG:
            marks.append(pytest.mark.xfail(reason=WRONG[cell], strict=True))
        cases.append(pytest.param(*cell, marks=marks))
    return cases


@pytest.mark.parametrize(("feature", "operation"), _cases())
def test_operation_does_what_the_page_says(matrix: Matrix, feature: str, operation: str) -> None:
    try:
        outcome = matrix.outcome(feature, operation)
    except Impossible:
        outcome = "impossible"
    assert outcome == CELLS[feature][operation]


def test_page_names_features_and_operations() -> None:
    assert {*CELLS} <= {*FEATURES}
    for outcomes in CELLS.values():
        assert {*outcomes} <= {*OPERATIONS}
