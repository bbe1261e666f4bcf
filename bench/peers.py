"""The two ways of the systems that Headgate replaces, on the same topic and the same session.

Both get every help: Spark's Delta writer is tuned, the wrapper is opened once for all games, and
payloads are decoded by the same decoder, batch-wise, in Arrow.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from bench.data import Data, games
from headgate.envelopes.wrapper import WrapperEnvelope
from headgate.formats.protobuf import ProtobufDecoder
from headgate.lab.games import Game
from headgate.registry.registry import SchemaText

_OPENED = "game_name string, payload binary"


def a_write_per_game(spark: SparkSession, data: Data, folder: Path, batch: int) -> float:
    """`foreachBatch` with a Delta append for each game; rows a second of one batch."""
    lake = folder / "loop"
    shutil.rmtree(lake, ignore_errors=True)
    frame = _first_records(spark, data, batch).persist()
    frame.count()
    began = time.perf_counter()
    rows = frame.mapInArrow(_open, _OPENED).persist()
    for game in games(data.tables):
        mine = _decoded(rows.where(F.col("game_name") == game.name), game, data.versions)
        (
            mine.write.format("delta")
            .mode("append")
            .option("mergeSchema", "true")
            .option("txnAppId", "loop")
            .option("txnVersion", 0)
            .save(str(lake / game.name))
        )
    seconds = time.perf_counter() - began
    rows.unpersist()
    frame.unpersist()
    return batch / seconds


def a_stream_per_game(
    spark: SparkSession, data: Data, folder: Path, batch: int, streams: int
) -> float:
    """Bronze by game, then a stream for each; rows a second, bronze not counted."""
    lake = folder / f"streams-{streams}"
    shutil.rmtree(lake, ignore_errors=True)
    bronze = str(lake / "bronze")
    opened = _first_records(spark, data, batch).mapInArrow(_open, _OPENED)
    opened.write.format("delta").partitionBy("game_name").save(bronze)
    began = time.perf_counter()
    queries = []
    for game in games(streams):
        rows = spark.readStream.format("delta").load(bronze)
        mine = _decoded(rows.where(F.col("game_name") == game.name), game, data.versions)
        queries.append(
            mine.writeStream.format("delta")
            .option("checkpointLocation", str(lake / "checkpoints" / game.name))
            .option("mergeSchema", "true")
            .trigger(availableNow=True)
            .start(str(lake / game.name))
        )
    for query in queries:
        query.awaitTermination()
    return batch / (time.perf_counter() - began)


def _first_records(spark: SparkSession, data: Data, batch: int) -> DataFrame:
    """As many records as one of Headgate's batches has."""
    return (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", data.services.servers)
        .option("subscribe", data.topic)
        .load()
        .select("value")
        .limit(batch)
    )


def _open(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    decoder = WrapperEnvelope("wrapper", "game_name", "schema_id", "payload").decoder
    for batch in batches:
        columns = decoder.decode(batch.column("value")).columns
        yield columns.select(["game_name", "payload"])


def _decoded(rows: DataFrame, game: Game, versions: int) -> DataFrame:
    newest = game.proto(versions)
    schema = ProtobufDecoder.compile(SchemaText("PROTOBUF", newest), (0,)).schema
    return rows.select("payload").mapInArrow(_decode_with(newest), from_arrow_schema(schema))


def _decode_with(
    proto: str,
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def decode(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        decoder = ProtobufDecoder.compile(SchemaText("PROTOBUF", proto), (0,))
        for batch in batches:
            yield decoder.decode(batch.column("payload")).columns

    return decode
