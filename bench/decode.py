"""Decoding alone: payloads in memory to columns, beside what else decodes them."""

from __future__ import annotations

import io
import json
import random
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from headgate.formats.avro import AvroDecoder
from headgate.formats.decoder import Decoder
from headgate.formats.protobuf import ProtobufDecoder
from headgate.registry.registry import SchemaText

_RECORDS = 400_000
_DISTINCT = 5_000
_TIMES = 3

_PLAYED = """
syntax = "proto3";
message played {
  string user = 1; int64 at = 2; int32 score = 3; double seconds = 4;
  bool won = 5; string level = 6; uint64 session = 7; int32 lives = 8;
}
"""
_ORDER = """
syntax = "proto3";
message order {
  message line { string item = 1; int32 count = 2; double price = 3; }
  string id = 1; int64 at = 2; string customer = 3; string city = 4;
  double total = 5; bool paid = 6; int32 store = 7; repeated line lines = 8;
}
"""
_AVRO_PLAYED = {
    "user": "string",
    "at": "long",
    "score": "int",
    "seconds": "double",
    "won": "boolean",
    "level": "string",
    "session": "long",
    "lives": ["null", "int"],
}
_AVRO_ORDER = {
    "id": "string",
    "at": {"type": "long", "logicalType": "timestamp-micros"},
    "customer": "string",
    "city": ["null", "string"],
    "total": "double",
    "paid": "boolean",
    "store": "int",
    "lines": {
        "type": "array",
        "items": {
            "type": "record",
            "name": "line",
            "fields": [
                {"name": "item", "type": "string"},
                {"name": "count", "type": "int"},
                {"name": "price", "type": "double"},
            ],
        },
    },
}


@dataclass(frozen=True)
class Decoding:
    """How fast one way is with one kind of record."""

    records: str
    way: str
    rate: float
    megabytes: float


def decode_all(spark: SparkSession, say: Callable[[str], None]) -> list[Decoding]:
    """Headgate first for each kind of record, then the others on the same payloads."""
    found = []
    for name, text in (("played", _PLAYED), ("order", _ORDER)):
        say(f"Decoding protobuf, {name}")
        found += _protobuf(name, SchemaText("PROTOBUF", text))
    for name, fields in (("played", _AVRO_PLAYED), ("order", _AVRO_ORDER)):
        say(f"Decoding Avro, {name}")
        found += _avro(spark, name, fields)
    return found


def _protobuf(name: str, text: SchemaText) -> list[Decoding]:
    decoder = ProtobufDecoder.compile(text, (0,))
    rows = [_row(name, number) for number in range(_DISTINCT)]
    payloads = _repeated([decoder.message(**row).SerializeToString() for row in rows])
    parse, several = decoder.message.FromString, payloads.to_pylist()
    fields = [field.name for field in decoder.message.DESCRIPTOR.fields]

    def forget() -> None:
        for payload in several:
            parse(payload)

    def keep() -> None:
        [parse(payload) for payload in several]

    def read() -> None:
        for payload in several:
            message = parse(payload)
            [getattr(message, field) for field in fields]

    kind = f"protobuf {name}"
    return [
        _measured(kind, "Headgate", payloads, lambda: _decode(decoder, payloads)),
        _measured(kind, "python-protobuf, a batch parsed", payloads, keep),
        _measured(kind, "python-protobuf, parsed and read", payloads, read),
        _measured(kind, "python-protobuf, parsed and forgotten", payloads, forget),
    ]


def _avro(spark: SparkSession, name: str, fields: dict[str, Any]) -> list[Decoding]:
    columns = [{"name": field, "type": kind} for field, kind in fields.items()]
    schema = json.dumps({"type": "record", "name": name, "fields": columns})
    decoder = AvroDecoder.parse(SchemaText("AVRO", schema))
    parsed = fastavro.parse_schema(json.loads(schema))
    payloads = _repeated([_written(parsed, _row(name, number)) for number in range(_DISTINCT)])
    several = payloads.to_pylist()

    def read_all() -> None:
        for payload in several:
            fastavro.schemaless_reader(io.BytesIO(payload), parsed, None)

    kind = f"Avro {name}"
    return [
        _measured(kind, "Headgate", payloads, lambda: _decode(decoder, payloads)),
        _measured(kind, "fastavro", payloads, read_all),
        _from_avro(spark, kind, schema, payloads),
    ]


def _from_avro(spark: SparkSession, kind: str, schema: str, payloads: pa.BinaryArray) -> Decoding:
    """Spark's own, from memory and to nowhere; its rate is divided by the cores it used."""
    from pyspark.sql.avro.functions import from_avro

    with tempfile.TemporaryDirectory() as folder:
        pq.write_table(pa.table({"value": payloads}), f"{folder}/rows.parquet")
        stored = spark.read.parquet(folder)
        cores = spark.sparkContext.defaultParallelism
        rows = stored.repartition(cores).persist()
        rows.count()
        decoded = rows.select(from_avro("value", schema).alias("row")).select("row.*")
        one = _measured(
            kind,
            "Spark from_avro",
            payloads,
            lambda: decoded.write.format("noop").mode("overwrite").save(),
        )
        rows.unpersist()
    return Decoding(kind, one.way, one.rate / cores, one.megabytes / cores)


def _measured(kind: str, way: str, payloads: pa.BinaryArray, run: Callable[[], None]) -> Decoding:
    """The best of some runs, after one that does not count."""
    seconds = []
    for _ in range(_TIMES + 1):
        began = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - began)
    rate = len(payloads) / min(seconds[1:])
    return Decoding(kind, way, rate, rate * payloads.nbytes / len(payloads) / 1_000_000)


def _decode(decoder: Decoder, payloads: pa.BinaryArray) -> None:
    assert not decoder.decode(payloads).bad


def _repeated(distinct: list[bytes]) -> pa.BinaryArray:
    return pa.array(distinct * (_RECORDS // len(distinct)), pa.binary())


def _written(schema: Any, row: dict[str, Any]) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, schema, row)
    return stream.getvalue()


def _row(name: str, seed: int) -> dict[str, Any]:
    chance = random.Random(seed)
    if name == "played":
        return {
            "user": f"user-{chance.randrange(10**6)}",
            "at": chance.randrange(10**15),
            "score": chance.randrange(10**6),
            "seconds": chance.random() * 100,
            "won": chance.random() < 0.5,
            "level": chance.choice(["easy", "normal", "hard"]),
            "session": chance.randrange(10**15),
            "lives": chance.randrange(1, 10),
        }
    return {
        "id": f"{chance.randrange(16**12):012x}",
        "at": chance.randrange(10**15),
        "customer": f"customer-{chance.randrange(10**6)}",
        "city": chance.choice(["Bergen", "Lisboa", "Kraków"]),
        "total": chance.random() * 100,
        "paid": chance.random() < 0.9,
        "store": chance.randrange(1, 500),
        "lines": [
            {"item": f"item-{chance.randrange(1000)}", "count": 1 + at, "price": chance.random()}
            for at in range(2)
        ],
    }
