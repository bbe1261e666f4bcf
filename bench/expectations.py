"""Rules alone: rows in memory to the rows that pass, beside DuckDB on the same rows."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal

import duckdb
import pyarrow as pa
import sqlglot
from rich.table import Table

from headgate.sql.evaluate import Condition, evaluate

RULES = (
    "user_name IS NOT NULL",
    "score BETWEEN 0 AND 10000",
    "color IN ('black', 'white')",
    "seconds >= 0 AND seconds < 99.5",
    "price * 2 <= 15000.50",
    "at >= TIMESTAMP '2001-09-10 00:00:00'",
    "user_name LIKE 'user-1%'",
    "CAST(level AS int) < 90",
)
SIZES = (250_000, 1_000)
_TIMES = 40


@dataclass(frozen=True)
class Checking:
    """How fast one way checks batches of one size."""

    rows: int
    way: str
    seconds: float

    @property
    def rate(self) -> float:
        return self.rows / self.seconds


def check_all(say: Callable[[str], None]) -> list[Checking]:
    """All rules at once, in batches of each size; Headgate first, then DuckDB."""
    found = []
    for size in SIZES:
        say(f"Checking {len(RULES)} rules on {size:,} rows")
        found += _check(_rows(size))
    return found


def checking_table(checked: list[Checking]) -> Table:
    table = Table(title=f"Rules of `expect` alone: {len(RULES)} rules, on one core")
    for heading in ("rows a batch", "way", "rows/s", "ms a batch", "Headgate is"):
        table.add_column(heading, justify="left" if heading == "way" else "right")
    for one in checked:
        mine = next(each for each in checked if each.rows == one.rows)
        ratio = "" if one is mine else f"{mine.rate / one.rate:.1f} x"
        milliseconds = f"{one.seconds * 1000:.2f}"
        table.add_row(f"{one.rows:,}", one.way, f"{one.rate:,.0f}", milliseconds, ratio)
    return table


def _check(rows: pa.RecordBatch) -> list[Checking]:
    conditions = tuple(map(Condition.parse, RULES))
    connection = duckdb.connect()
    connection.execute("SET threads = 1")
    outputs = ", ".join(sqlglot.transpile(rule, "spark", "duckdb")[0] for rule in RULES)

    def with_duckdb() -> list[pa.ChunkedArray]:
        connection.register("rows", pa.Table.from_batches([rows]))
        columns: list[pa.ChunkedArray] = (
            connection.execute(f"SELECT {outputs} FROM rows").to_arrow_table().columns
        )
        return columns

    ours, theirs = evaluate(conditions, rows), with_duckdb()
    for rule, one, other in zip(RULES, ours, theirs, strict=True):
        assert one.to_pylist() == other.to_pylist(), rule
    # In turn, so that both meet the same load of the machine.
    seconds = [
        (_timed(lambda: evaluate(conditions, rows)), _timed(with_duckdb)) for _ in range(_TIMES)
    ]
    return [
        Checking(len(rows), way, min(column))
        for way, column in zip(("Headgate", "DuckDB"), zip(*seconds, strict=True), strict=True)
    ]


def _timed(run: Callable[[], object]) -> float:
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


def _rows(count: int) -> pa.RecordBatch:
    chance = random.Random(count)
    users = [f"user-{chance.randrange(10**6)}" for _ in range(count)]
    return pa.record_batch(
        {
            "user_name": [user if chance.random() > 0.01 else None for user in users],
            "score": pa.array([chance.randrange(20_000) for _ in users], pa.int32()),
            "seconds": [chance.random() * 100 for _ in users],
            "color": [chance.choice(["black", "white", "red"]) for _ in users],
            "price": pa.array(
                [Decimal(chance.randrange(10**6)) / 100 for _ in users], pa.decimal128(10, 2)
            ),
            "at": pa.array(
                [chance.randrange(10**15, 2 * 10**15) for _ in users], pa.timestamp("us", "UTC")
            ),
            "level": [str(chance.randrange(100)) for _ in users],
        }
    )
