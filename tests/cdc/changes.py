"""A small database that logs its changes, and the orders in which they may arrive."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from random import Random
from uuid import UUID

import pyarrow as pa

from headgate.envelopes.datastream.changes import METADATA

Row = dict[str, str | int]
Rows = dict[int, Row]

FIRST_SERIES = "mysql-bin"
SECOND_SERIES = "binlog"
KEYS = range(1, 6)
PAYLOAD = pa.schema([("id", pa.int64()), ("name", pa.string()), ("amount", pa.int64())])

_BACKFILL = "mysql-backfill-fulldump"
_BINLOG = "mysql-cdc-binlog"


@dataclass(frozen=True, slots=True)
class Change:
    """One record of a change file."""

    key: int
    columns: Row
    change_type: str
    uuid: str
    micros: int
    log_file: str = ""
    log_position: int = 0

    @property
    def is_backfill(self) -> bool:
        return not self.log_file

    @property
    def is_deleted(self) -> bool:
        return self.change_type in ("DELETE", "UPDATE-DELETE")


@dataclass
class Database:
    """One table, the log of its changes, and a coarse clock that gives many the same timestamp."""

    random: Random
    rows: Rows
    series: str = FIRST_SERIES
    file: int = 1
    position: int = 4
    micros: int = 1_700_000_000_000_000
    versions: int = 0
    changes: list[Change] = field(default_factory=list)
    states: list[Rows] = field(default_factory=list)
    """The rows after each change, including rows that no change has mentioned yet."""

    def insert(self, key: int) -> None:
        self.rows[key] = self.new_columns()
        self._log([(key, self.rows[key], "INSERT")])

    def update(self, key: int) -> None:
        self.rows[key] = self.new_columns()
        self._log([(key, self.rows[key], "UPDATE")])

    def delete(self, key: int) -> None:
        self._log([(key, self.rows.pop(key), "DELETE")])

    def move(self, moves: dict[int, int]) -> None:
        """Run one statement that changes keys of rows; one row may take the old key of another."""
        left = {key: self.rows.pop(key) for key in moves}
        taken = {moves[key]: self.new_columns() for key in left}
        self.rows |= taken
        self._log(
            [
                *((key, columns, "UPDATE-DELETE") for key, columns in left.items()),
                *((key, columns, "UPDATE-INSERT") for key, columns in taken.items()),
            ]
        )

    def dump(self) -> None:
        """Run a backfill: log all current rows as inserts."""
        self._tick()
        for key, columns in self.rows.items():
            self.changes.append(Change(key, columns, "INSERT", self._uuid(), self.micros))
            self.states.append(dict(self.rows))

    def rotate(self) -> None:
        """Start the next log file, in which positions restart."""
        self.file, self.position = self.file + 1, 4

    def fail_over(self) -> None:
        """Fail over to another server with its own log files."""
        self.series, self.file, self.position = SECOND_SERIES, 1, 4

    def new_columns(self) -> Row:
        """Return values that no row had before."""
        self.versions += 1
        return {"name": f"version {self.versions}", "amount": self.versions}

    def _log(self, rows: list[tuple[int, Row, str]]) -> None:
        self._tick()
        self.position += self.random.choice((31, 310, 31_000))
        file = f"{self.series}.{self.file:06}"
        for key, columns, change_type in rows:
            uuid = self._uuid()
            self.changes.append(
                Change(key, columns, change_type, uuid, self.micros, file, self.position)
            )
            self.states.append(dict(self.rows))

    def _tick(self) -> None:
        self.micros += self.random.choice((0, 0, 1_000, 400_000))

    def _uuid(self) -> str:
        return str(UUID(int=self.random.getrandbits(128)))


@dataclass(frozen=True)
class Case:
    """Changes in order, the batches in which they arrive, and the expected rows."""

    changes: list[Change]
    batches: list[list[Change]]
    rows: Rows
    lineages: list[str]
    states: list[Rows]
    """The rows before the first change, then after each change."""


def case(seed: int, fail_over: bool = False) -> Case:
    """Return a random case; the seed determines it."""
    random = Random(seed)
    database = Database(random, {}, file=random.choice((1, 998, 999_998)))
    database.rows.update((key, database.new_columns()) for key in KEYS if random.random() < 0.5)
    database.states.append(dict(database.rows))
    statements = random.randint(4, 16)
    dumps = {random.randrange(statements) for _ in range(random.randint(1, 2))}
    failing = random.randrange(statements) if fail_over else None
    for number in range(statements):
        if number in dumps:
            database.dump()
        if number == failing:
            database.fail_over()
        elif random.random() < 0.2:
            database.rotate()
        _run_any_statement(database)
    lineages = [f"log:{FIRST_SERIES}", *([f"log:{SECOND_SERIES}"] if fail_over else [])]
    batches = arrivals(database.changes, random)
    return Case(database.changes, batches, database.rows, lineages, database.states)


def _run_any_statement(database: Database) -> None:
    random, rows = database.random, database.rows
    key = random.choice(KEYS)
    chance = random.random()
    if key not in rows:
        database.insert(key)
    elif chance < 0.4:
        database.update(key)
    elif chance < 0.7:
        database.delete(key)
    elif chance < 0.85:
        step = random.choice((-1, 1))
        database.move({key: key + step for key in rows})
    else:
        free = [other for other in range(1, 10 + len(rows)) if other not in rows]
        database.move({key: random.choice(free)})


def arrivals(changes: list[Change], random: Random) -> list[list[Change]]:
    """Return the changes in batches: ordered, nearly ordered or shuffled, some repeated."""
    repeated = [change for change in changes if random.random() < 0.2]
    spread = random.choice((0, 4, 1_000))
    places = {change.uuid: place for place, change in enumerate(changes)}
    arriving = sorted(
        changes + repeated, key=lambda change: places[change.uuid] + random.random() * spread
    )
    cuts = sorted(random.randrange(len(arriving) + 1) for _ in range(random.randint(0, 4)))
    bounds = [0, *cuts, len(arriving)]
    batches = [arriving[start:end] for start, end in pairwise(bounds)]
    return [batch for batch in batches if batch]


def tables(changes: list[Change]) -> tuple[pa.Table, pa.Table]:
    """Return the metadata and the rows of changes, as an opened change file has them."""
    count = len(changes)
    values = {
        "_uuid": [change.uuid for change in changes],
        "_change_type": [change.change_type for change in changes],
        "_is_deleted": [change.is_deleted for change in changes],
        "_source_timestamp": [change.micros for change in changes],
        "_read_timestamp": [change.micros + 1_000_000 for change in changes],
        "_read_method": [_BACKFILL if change.is_backfill else _BINLOG for change in changes],
        "_sort_keys": [
            [str(change.micros // 1_000), change.log_file, str(change.log_position)]
            for change in changes
        ],
        "_primary_keys": [["id"]] * count,
        "_database": ["theatre"] * count,
        "_table": ["seats"] * count,
        "_log_file": [change.log_file for change in changes],
        "_log_position": [change.log_position for change in changes],
    }
    metadata = [
        pa.array(values[name.name], name.type)
        if name.name in values
        else pa.nulls(count, name.type)
        for name in METADATA
    ]
    rows = [{"id": change.key, **change.columns} for change in changes]
    return pa.table(metadata, METADATA), pa.Table.from_pylist(rows, PAYLOAD)
