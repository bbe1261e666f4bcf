"""Spark's committer keeps the same contract as delta-rs's, and takes what that one cannot."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headgate.lake.choose_committer import choose_committer
from headgate.lake.commit import Committer
from headgate.lake.spark import SparkCommitter
from tests.lake.committer_contract import CommitterContract


class TestSparkCommitter(CommitterContract):
    @pytest.fixture
    def committer(self, spark: SparkSession, lake: Path) -> Committer:
        return SparkCommitter(spark, str(lake))


class TestChosenCommitter(CommitterContract):
    @pytest.fixture
    def committer(self, spark: SparkSession, lake: Path) -> Committer:
        return choose_committer("auto", spark, str(lake))
