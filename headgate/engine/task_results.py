"""Results of the tasks of a staging job, as rows that Spark returns to the driver."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from headgate import errors
from headgate.lake.staged import StagedFile

RESULT_DDL = "file string, error string"
_SCHEMA = pa.schema([pa.field("file", pa.string()), pa.field("error", pa.string())])

TaskResult = tuple[str | None, str | None]
"""A staged file or an error, as JSON."""


def encode_files(files: Iterable[StagedFile]) -> pa.RecordBatch:
    """Return one row per file that a task wrote."""
    texts = [file.to_json() for file in files]
    return _rows(texts, [None] * len(texts))


def encode_error(name: str, *parts: object) -> pa.RecordBatch:
    """Return an error of a task as a row.

    An exception would reach the driver as the text of a traceback, without its code and hint.
    """
    return _rows([None], [json.dumps([name, *parts])])


def task_results(batches: Iterable[pa.RecordBatch]) -> Iterator[TaskResult]:
    """Return the rows of a task that ran in this process instead of in a Spark job."""
    for batch in batches:
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def decode_results(results: Iterable[TaskResult]) -> list[StagedFile]:
    """Return the staged files of all tasks; raise the error of a task that failed."""
    files = []
    for file, error in results:
        if error is not None:
            name, *parts = json.loads(error)
            raise getattr(errors, name)(*parts)
        assert file is not None
        files.append(StagedFile.from_json(file))
    return files


def _rows(*columns: Sequence[str | None]) -> pa.RecordBatch:
    return pa.record_batch([pa.array(texts, pa.string()) for texts in columns], _SCHEMA)
