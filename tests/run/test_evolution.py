"""The matrix in all readers, some of it by Spark's committer; types that change mid-stream."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from headgate.config import Delta, Mode, PipelineConfig
from headgate.engine.runner import RunOptions
from headgate.lab.destination import DeltaDestination
from headgate.lake.spark import SparkCommitter
from headgate.registry.folder import FolderRegistry
from headgate.registry.registry import SchemaText
from headgate.run import run_pipeline
from tests.engine.games import ENVELOPE
from tests.evolution.cases import Case, cases
from tests.evolution.landed import land_cases, row_of
from tests.readers import by_deltalake, by_duckdb, by_spark, comparable
from tests.rounds import rounds

CASES = [case for case in cases() if case.asks != ["SameColumns"]]
"""Those that change something about a table."""


def one_of_each_kind() -> list[Case]:
    """A commit by Spark takes seconds; what it does depends on what is asked of the table."""
    return list({(case.format, *case.asks): case for case in CASES}.values())


@pytest.mark.soak
def test_matrix_with_sparks_committer(spark: SparkSession, tmp_path: Path) -> None:
    committer = SparkCommitter(lambda: spark, str(tmp_path / "lake"))
    some = one_of_each_kind()
    landed = land_cases(tmp_path, some, Mode.EVOLVE, committer)
    for case in some:
        assert landed.told(case) == case.outcomes(Mode.EVOLVE), case.change
        assert landed.rows(case)[-1] == case.lands(Mode.EVOLVE), case.change
        path = str(landed.lake.path / f"silver_{case.route}")
        rows = by_deltalake(path)
        assert comparable(by_duckdb(path), rows) == comparable(rows, rows), case.change


@rounds(4, len(CASES))
def test_tables_of_the_matrix_open_in_all_readers(
    spark: SparkSession, tmp_path: Path, cases: int
) -> None:
    first = one_of_each_kind()
    some = [*first, *(case for case in CASES if case not in first)][:cases]
    landed = land_cases(tmp_path, some, Mode.EVOLVE)
    paths = [str(landed.lake.path / f"silver_{case.route}") for case in some]
    with ThreadPoolExecutor(8) as pool:
        read_by_spark = pool.map(lambda path: by_spark(spark, path), paths)
        for case, path, theirs in zip(some, paths, read_by_spark, strict=True):
            rows = by_deltalake(path)
            assert comparable(by_duckdb(path), rows) == comparable(rows, rows), case.change
            assert comparable(theirs, rows) == comparable(rows, rows), case.change


@pytest.mark.soak
def test_types_change_both_ways_while_the_stream_runs(
    spark: SparkSession, delta_pipeline: PipelineConfig, inbox: DeltaDestination, tmp_path: Path
) -> None:
    schemas = FolderRegistry(tmp_path / "schemas")
    ids = {
        kind: schemas.register(
            "event",
            SchemaText("PROTOBUF", f'syntax = "proto3"; message event {{ {kind} n = 1; }}'),
        )
        for kind in ("int32", "int64", "string")
    }
    sent: list[tuple[str, int | str]] = [
        ("int32", -5),
        ("int64", 2**40),
        ("int32", 7),
        ("string", "12"),
        ("int64", -(2**63)),
        ("int32", 2**31 - 1),
        ("string", ""),
    ]
    for kind, value in sent:
        inbox.send(pa.array([_record(ids[kind], kind, value)], pa.binary()))
    one_file_a_batch = delta_pipeline.model_copy(
        update={"source": Delta(path=str(tmp_path / "inbox"), batch="1 KB")}
    )
    ended = run_pipeline(one_file_a_batch, RunOptions(once=True))
    assert ended.batches == len(sent)
    path = f"{delta_pipeline.lake}/silver_chess"
    rows = by_deltalake(path)
    for other in (by_duckdb(path), by_spark(spark, path)):
        assert comparable(other, rows) == comparable(rows, rows)
    found = [row_of(row) for row in rows.sort_by("_timestamp").to_pylist()]
    assert found == [{"n__string" if kind == "string" else "n": value} for kind, value in sent]


def _record(schema_id: int, kind: str, value: int | str) -> bytes:
    from headgate.formats.protobuf import ProtobufDecoder
    from headgate.formats.protobuf.descriptors import compile_proto

    text = f'syntax = "proto3"; message event {{ {kind} n = 1; }}'
    files = compile_proto({"event.proto": text}, "event.proto")
    payload = ProtobufDecoder.for_message(files, "event").message(n=value).SerializeToString()
    message = ENVELOPE.decoder.message(game_name="chess", schema_id=schema_id, payload=payload)
    return bytes(message.SerializeToString())
