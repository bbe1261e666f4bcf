"""The actions of the Delta protocol, as Headgate writes them into the log of a table."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import quote

from headgate.lake.commit import Mark
from headgate.lake.definition import TableDefinition
from headgate.lake.staged import StagedFile

ENGINE = "headgate"
_UNQUOTED = "/=!$&'()*+,;:@"

Action = Mapping[str, Any]


def commit_info(
    transaction: str, operation: str, mode: str, partition_by: Iterable[str], is_blind: bool
) -> Action:
    """Return what a commit says of itself: the first action of its entry."""
    return {
        "commitInfo": {
            "timestamp": now(),
            "operation": operation,
            "operationParameters": {"mode": mode, "partitionBy": json.dumps([*partition_by])},
            "engineInfo": ENGINE,
            # Readers of Delta take a commit that does not say so for one that depends on rows.
            "isBlindAppend": is_blind,
            "txnId": transaction,
        }
    }


def definition_actions(
    after: TableDefinition, before: TableDefinition | None = None
) -> Iterator[Action]:
    """Yield what changes of a table's protocol and metadata."""
    if before is None or after.protocol != before.protocol:
        yield {"protocol": after.protocol.action()}
    if before is None or after.metadata != before.metadata:
        yield {"metaData": after.metadata.action()}


def mark_actions(marks: Iterable[Mark]) -> Iterator[Action]:
    for mark in marks:
        yield {"txn": {"appId": mark.app, "version": mark.version, "lastUpdated": now()}}


def add_action(
    file: StagedFile, modified: int | None = None, *, data_change: bool = True
) -> Action:
    return {
        "add": {
            "path": quote(file.path, safe=_UNQUOTED),
            "partitionValues": dict(file.partition or {}),
            "size": file.size,
            "modificationTime": now() if modified is None else modified,
            "dataChange": data_change,
            "stats": file.statistics,
        }
    }


def remove_action(
    path: str,
    size: int,
    partition: Mapping[str, str | None] | None = None,
    *,
    data_change: bool = True,
) -> Action:
    """Return the action that removes a file without a deletion vector.

    Delta lets writers leave out the values of partitions.
    """
    about: dict[str, Any] = {"extendedFileMetadata": False}
    if partition is not None:
        about = {"extendedFileMetadata": True, "partitionValues": dict(partition), "size": size}
    return {
        "remove": {
            "path": quote(path, safe=_UNQUOTED),
            "deletionTimestamp": now(),
            "dataChange": data_change,
            **about,
        }
    }


def now() -> int:
    """Return the time in milliseconds since the epoch."""
    return int(time.time() * 1000)
