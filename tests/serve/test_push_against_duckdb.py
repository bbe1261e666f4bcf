"""Any push query, whatever happens to its tables: its changes add up to DuckDB's result."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, product
from pathlib import Path
from random import Random
from typing import Any, Self

import duckdb
import pyarrow as pa
import pytest
from deltalake import write_deltalake

from headgate.serve.push import Change
from tests.rounds import rounds
from tests.serve.conftest import QueryLake

NUMBER = ("n", pa.int64())
SCHEMAS = {
    "t": pa.schema([("k", pa.int32()), ("a", pa.int64()), ("b", pa.string()), NUMBER]),
    "u": pa.schema([("k", pa.int32()), ("w", pa.int32()), ("name", pa.string()), NUMBER]),
    "v": pa.schema([("w", pa.int32()), ("label", pa.string()), NUMBER]),
}
KEYS, WORDS = (1, 2, None), ("x", "y", None)
ROWS: Mapping[str, Callable[[Random], dict[str, Any]]] = {
    "t": lambda r: {"k": r.choice(KEYS), "a": r.randint(0, 4), "b": r.choice(WORDS)},
    "u": lambda r: {"k": r.choice(KEYS), "w": r.choice(KEYS), "name": r.choice(WORDS)},
    "v": lambda r: {"w": r.choice(KEYS), "label": r.choice(WORDS)},
}
CONDITIONS = {
    "u": ["USING (k)", *(f"ON {on}" for on in ("t.k = u.k AND t.a > 1", "t.a > u.w", "true"))],
    "v": [f"ON {on}" for on in ("t.k = v.w", "u.w = v.w OR u.w IS NULL", "t.b = v.label", "true")],
}
VALUES = {
    "t": ["t.k", "t.a + 1", "t.b", "CASE WHEN t.a > 1 THEN 'many' END"],
    "u": ["u.name", "u.w * 2"],
    "v": ["v.label", "coalesce(v.label, '-')"],
}
AGGREGATES = {
    "t": ["count(*)", "count(1)", "count(t.k)", "sum(t.a)", "max(t.b)", "count(DISTINCT t.a)"],
    "u": ["count(u.name)", "max(u.w)", "count(DISTINCT u.name)"],
    "v": ["count(v.label)", "min(v.label)"],
}
FILTERS = ["", "", " WHERE t.a > 1", " WHERE t.k IS NULL OR t.a < 3"]
HAVING = ["", " HAVING count(*) > 1", " HAVING max(t.a) > 1"]
JOINS = [(), ("",), ("LEFT ",), *product(["", "LEFT "], repeat=2)]
KINDS = ["rows", "constants", "distinct", "groups", "one group", "counted"]
STEPS = ["append", "append", "append", "delete", "update", "overwrite", "compact"]


@dataclass(frozen=True)
class Select:
    """A query, and the tables that it reads."""

    text: str
    tables: tuple[str, ...]

    @classmethod
    def random(cls, random: Random, joins: Sequence[str], kind: str) -> Self:
        tables = ("t", "u", "v")[: len(joins) + 1]
        source = "t" + "".join(
            f" {join}JOIN {table} {random.choice(CONDITIONS[table])}"
            for join, table in zip(joins, tables[1:], strict=True)
        )
        values = random.sample([value for table in tables for value in VALUES[table]], 2)
        calls = random.sample([call for table in tables for call in AGGREGATES[table]], 2)
        where = random.choice(FILTERS)
        match kind:
            case "rows":
                text = f"SELECT {_named(values)} FROM {source}{where}"
            case "constants":
                text = f"SELECT 1 AS c0 FROM {source}"
            case "distinct":
                text = f"SELECT DISTINCT {_named(values)} FROM {source}{where}"
            case "groups":
                text = f"SELECT {_named(values + calls)} FROM {source}{where}"
                text += f" GROUP BY {', '.join(values)}{random.choice(HAVING)}"
            case "counted":
                text = f"SELECT count(*) AS c0 FROM {source}"
            case _:
                text = f"SELECT {_named(calls)} FROM {source}{where}"
        return cls(text, tables)


def _named(expressions: Iterable[str]) -> str:
    return ", ".join(f"{value} AS c{at}" for at, value in enumerate(expressions))


@rounds(small=1, whole=30)
@pytest.mark.parametrize(
    "joins", JOINS, ids=lambda joins: "".join(f"{join}JOIN" for join in joins) or "FROM"
)
@pytest.mark.parametrize("kind", KINDS)
def test_changes_add_up_to_the_result(
    tmp_path: Path, kind: str, joins: Sequence[str], cases: int
) -> None:
    """Also for readers that continue after any change."""
    for case in range(cases):
        random = Random(f"{kind} {joins} {case}")
        lake = QueryLake(tmp_path / str(case))
        check(lake, Select.random(random, joins, kind), random)


def check(lake: QueryLake, select: Select, random: Random) -> None:
    has_feed = random.random() < 0.5
    properties = {"delta.enableChangeDataFeed": str(has_feed).lower()}
    numbers = count()

    def write(table: str, mode: Any) -> None:
        rows = [ROWS[table](random) for _ in range(random.randint(1, 3))]
        for row in rows:
            # delta-rs leaves an updated row out of the feed if another row is equal to it.
            row["n"] = next(numbers) if has_feed else 0
        write_deltalake(
            lake.path / table,
            pa.Table.from_pylist(rows, SCHEMAS[table]),
            mode=mode,
            configuration=properties,
        )

    for table in select.tables:
        write(table, "append")
    sql = f"{select.text} EMIT CHANGES"
    reader = lake.query(sql)
    changes = reader.read()
    assert replayed(changes) == result(lake, select), select
    steps: list[tuple[str, str]] = []
    for _ in range(4):
        step, table = random.choice(STEPS), random.choice(select.tables)
        steps.append((step, table))
        column = SCHEMAS[table].names[0]
        match step:
            case "delete":
                lake.delta(table).delete(f"{column} = 1")
            case "update":
                lake.delta(table).update({column: "2"}, predicate=f"{column} = 1")
            case "compact":
                lake.delta(table).optimize.compact()
            case mode:
                write(table, mode)
        if changes and random.random() < 0.3:
            changes = changes[: random.randint(1, len(changes))]
            reader = lake.query(sql, token=changes[-1].token)
        changes += reader.read()
        assert replayed(changes) == result(lake, select), (select, steps)
    pulled = lake.pull(select.text).to_pylist()
    assert Counter(map(row_text, pulled)) == result(lake, select), (select, steps)


def replayed(changes: list[Change]) -> Counter[str]:
    """Return what a reader has that applies all changes; each removes only what is there."""
    found: Counter[str] = Counter()
    for change in changes:
        if change.before is not None:
            found[row_text(change.before)] -= 1
            assert found[row_text(change.before)] >= 0, change
        if change.operation != "delete":
            found[row_text(change.row)] += 1
    return +found


def result(lake: QueryLake, select: Select) -> Counter[str]:
    with duckdb.connect() as connection:
        for table in select.tables:
            connection.register(table, lake.delta(table).to_pyarrow_table())
        rows = connection.execute(select.text).to_arrow_table()
    return Counter(map(row_text, rows.to_pylist()))


def row_text(row: Mapping[str, Any]) -> str:
    # A sum may be a decimal without a fraction.
    return repr([int(value) if hasattr(value, "as_tuple") else value for value in row.values()])
