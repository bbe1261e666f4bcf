"""Spark's committer keeps the same contract as that of delta-rs."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headgate.lake.commit import Committer
from headgate.lake.spark import SparkCommitter
from tests.lake.committer_contract import CommitterContract


class TestSparkCommitter(CommitterContract):
    @pytest.fixture
    def committer(self, spark: SparkSession, lake: Path) -> Committer:
        return SparkCommitter(lambda: spark, str(lake))
