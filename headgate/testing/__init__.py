"""Tests of your own pipelines: real tables in a temporary folder, without Spark and Kafka.

import headgate.testing

lake = headgate.testing.InProcessLake("games.yaml", tmp_path)
chess = lake.register("chess", 'syntax = "proto3"; message event { string user_name = 1; }')
lake.land([lake.record("chess", chess, {"user_name": "ann"})])
assert lake.rows("silver_chess", "user_name") == [{"user_name": "ann"}]
"""

from __future__ import annotations

from headgate.registry.folder import FolderRegistry
from headgate.testing.failing_committer import Crash, FailingCommitter
from headgate.testing.lake import InProcessLake
from headgate.testing.records import Record

__all__ = ["Crash", "FailingCommitter", "FolderRegistry", "InProcessLake", "Record"]
