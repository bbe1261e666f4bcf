"""A lake whose logs are read by a plain reader as soon as an entry appears.

The reader shares no code with the product. It keeps the rows of every version, and asks the
operation that made a version whether these rows are right.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, QueryBuilder

from tests.interleave.deletion_vectors import read_vector, vector_file, vector_id

Row = frozenset[tuple[str, Any]]
"""The values of a row by column, without nulls: adding a column does not change it."""
Rows = Counter[Row]
LiveFile = tuple[str, str | None]
"""The path of a data file, and its deletion vector."""
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint\.parquet")


def row(values: Mapping[str, Any]) -> Row:
    return frozenset((name, plain(value)) for name, value in values.items() if value is not None)


def plain(value: Any) -> Any:
    """Return a value that can be hashed."""
    if isinstance(value, list | dict):
        return repr(value)
    return value


def rows_of(table: pa.Table) -> Rows:
    return Counter(map(row, table.to_pylist()))


@dataclass(frozen=True)
class Version:
    """A version of a table as the plain reader has it."""

    number: int
    operation: Operation
    actions: tuple[Mapping[str, Any], ...]
    table_id: str
    columns: tuple[str, ...]
    partition_columns: tuple[str, ...]
    properties: Mapping[str, str]
    files: Mapping[LiveFile, Rows]
    marks: Mapping[str, int]
    identity: object = field(compare=False)
    """Of the entry in the log."""

    @property
    def rows(self) -> Rows:
        total: Rows = Counter()
        for rows in self.files.values():
            total.update(rows)
        return total

    def all(self, kind: str) -> list[Mapping[str, Any]]:
        return [action[kind] for action in self.actions if kind in action]

    @property
    def new_marks(self) -> dict[str, int]:
        return {txn["appId"]: txn["version"] for txn in self.all("txn")}


class Operation:
    """What an actor does, and which changes of rows that allows."""

    name: str

    def check(self, table: str, before: Version | None, after: Version) -> None:
        """Fail if the operation must not have made this version."""


@dataclass
class UserStep(Operation):
    """A step of somebody who may change all."""

    name: str = "user"


def check_definition(before: Version, after: Version) -> None:
    """Require that a version has all columns and properties of the one before."""
    assert {*before.columns} <= {*after.columns}, f"columns {before.columns} -> {after.columns}"
    assert before.partition_columns == after.partition_columns
    lost = before.properties.items() - after.properties.items()
    assert not lost, f"properties are lost: {lost}"


@dataclass
class SameRows(Operation):
    """Maintenance: it never changes rows."""

    name: str = "maintenance"

    def check(self, table: str, before: Version | None, after: Version) -> None:
        assert before is not None, f"{self.name} creates {table}"
        check_definition(before, after)
        assert after.rows == before.rows, difference(after.rows, before.rows)


def difference(found: Rows, wanted: Rows) -> str:
    """Say how rows differ."""

    def shown(rows: Rows) -> str:
        some = [(dict(sorted(item)), count) for item, count in list(rows.items())[:6]]
        return f"{rows.total()} rows, such as {some}" if rows else "none"

    return f"too many: {shown(found - wanted)}; missing: {shown(wanted - found)}"


_NOTHING = UserStep("preparation")


@dataclass
class WatchedLake:
    """The tables of a lake, with all their versions since they were created."""

    path: Path
    tables: dict[str, list[Version]] = field(default_factory=dict)
    drops: int = 0
    """Number of tables that were dropped."""
    _ages: Counter[str] = field(default_factory=Counter)
    """How often days have passed since a file was written, by path."""
    _doing: dict[str, tuple[Operation, set[str]]] = field(default_factory=dict)
    """What each actor does, and the files that there were when it began."""

    def doing(self, actor: str) -> Operation:
        return self._doing.get(actor, (_NOTHING, set()))[0]

    @contextmanager
    def operation(self, actor: str, operation: Operation) -> Iterator[None]:
        """Ascribe what an actor commits to an operation."""
        self._doing[actor] = operation, self._files()
        try:
            yield
            self.observe(actor)
        finally:
            self._doing.pop(actor, None)

    def let_days_pass(self) -> None:
        """Make everything older, but for what operations under way have written."""
        self._ages.update(self._files().intersection(*(files for _, files in self._doing.values())))

    def written(self, path: str) -> None:
        """Note that a file is new."""
        self._ages.pop(path, None)

    def older(self, path: str) -> float:
        """Return by how many seconds a file is older than its time says."""
        return 10 * 86400.0 * self._ages[path]

    def _files(self) -> set[str]:
        return {
            f"{folder}/{name}".removeprefix(f"{self.path}/")
            for folder, _, names in os.walk(self.path)
            for name in names
        }

    def observe(self, actor: str) -> None:
        """Read all entries of logs that are new, which the actor has written."""
        with os.scandir(self.path) as entries:
            names = [entry.name for entry in entries if entry.name[0] != "_"]
        for name in sorted(names):
            versions = self.tables.get(name, ())
            if versions:
                identity = self._identity(name, versions[-1].number)
                assert identity == versions[-1].identity, f"{actor} replaces an entry of {name}"
            while (entry := self._entry(name, len(versions))) is not None:
                before = versions[-1] if versions else None
                operation = self.doing(actor)
                after = self._version(name, before, entry, operation)
                versions = self.tables.setdefault(name, [])
                versions.append(after)
                where = f"version {after.number} of {name}, by {operation.name} of {actor}"
                try:
                    operation.check(name, before, after)
                except AssertionError as error:
                    raise AssertionError(f"{where}: {error}") from error

    def newest(self, table: str) -> Version:
        return self.tables[table][-1]

    def drop(self, table: str) -> None:
        """Delete a table with its folder."""
        shutil.rmtree(self.path / table)
        self.tables.pop(table, None)
        self.drops += 1

    def check_all(self) -> None:
        """Compare all versions that are left with what they were."""
        for name in self.tables:
            self.check_table(name)

    def check_table(self, name: str) -> None:
        log = self.path / name / "_delta_log"
        entries = {int(file.stem) for file in log.glob("*.json") if file.stem.isdigit()}
        newest = self.newest(name).number
        assert max(entries) == newest, f"{name} has entries up to {max(entries)}, not {newest}"
        checkpoints = {
            int(match[1]) for file in log.iterdir() if (match := _CHECKPOINT.fullmatch(file.name))
        }
        first = newest
        while first - 1 in entries and first > 0:
            first -= 1
        readable = min([at for at in checkpoints if at >= first], default=0 if first == 0 else None)
        assert readable is not None, f"{name} cannot be read: entries {sorted(entries)}"
        for version in self.tables[name][0 if first == 0 else readable :]:
            self._check_files(name, version)
        self._check_read(name, self.newest(name))

    def _check_files(self, name: str, version: Version) -> None:
        for path, vector in version.files:
            wanted = [path, *([vector_file(vector)] if vector else [])]
            for file in filter(None, wanted):
                exists = (self.path / name / file).exists()
                assert exists, f"version {version.number} of {name} lacks {file}"

    def _check_read(self, name: str, version: Version) -> None:
        """Compare a version with what delta-rs reads."""
        delta = DeltaTable(self.path / name, version=version.number)
        query = QueryBuilder().register("stored", delta).execute("SELECT * FROM stored")
        found = rows_of(pa.table(pa.RecordBatchReader.from_stream(query).read_all()))
        assert found == version.rows, f"{name} reads {difference(found, version.rows)}"
        read = DeltaTable(self.path / name)
        for app, marked in version.marks.items():
            assert read.transaction_version(app) == marked, f"mark {app} of {name}"

    def _identity(self, table: str, version: int) -> object:
        try:
            found = os.stat(self.path / table / "_delta_log" / f"{version:020d}.json")
        except FileNotFoundError:
            return None
        return found.st_ino, found.st_mtime_ns

    def _entry(self, table: str, version: int) -> list[dict[str, Any]] | None:
        file = self.path / table / "_delta_log" / f"{version:020d}.json"
        try:
            lines = file.read_text().splitlines()
        except FileNotFoundError:
            return None
        return [json.loads(line) for line in lines if line]

    def _version(
        self,
        name: str,
        before: Version | None,
        actions: list[dict[str, Any]],
        operation: Operation,
    ) -> Version:
        number = 0 if before is None else before.number + 1
        where = f"version {number} of {name}, by {operation.name}"
        metadata = next((action["metaData"] for action in actions if "metaData" in action), None)
        if metadata is not None:
            fields = json.loads(metadata["schemaString"])["fields"]
            table_id, columns = metadata["id"], tuple(field["name"] for field in fields)
            partition = tuple(metadata["partitionColumns"])
            properties = metadata["configuration"]
            assert before is None or before.table_id == table_id, f"{where}: another table id"
        else:
            assert before is not None, f"{where}: an entry of a table that was dropped"
            table_id, columns = before.table_id, before.columns
            partition, properties = before.partition_columns, before.properties
        files = dict(before.files) if before else {}
        for removed in (action["remove"] for action in actions if "remove" in action):
            live = _live(removed)
            assert live in files, f"{where}: removes {live}, which the table does not have"
            del files[live]
        for added in (action["add"] for action in actions if "add" in action):
            live = _live(added)
            assert live not in files, f"{where}: adds {live} twice"
            files[live] = self._rows_of_file(name, added, columns, partition, where)
        marks = dict(before.marks) if before else {}
        for mark in (action["txn"] for action in actions if "txn" in action):
            app, marked = mark["appId"], mark["version"]
            assert marks.get(app, -1) <= marked, f"{where}: lowers mark {app} to {marked}"
            marks[app] = marked
        return Version(
            number,
            operation,
            tuple(actions),
            table_id,
            columns,
            partition,
            properties,
            files,
            marks,
            self._identity(name, number),
        )

    def _rows_of_file(
        self,
        table: str,
        add: Mapping[str, Any],
        columns: tuple[str, ...],
        partition: tuple[str, ...],
        where: str,
    ) -> Rows:
        path = unquote(add["path"])
        file = self.path / table / path
        assert file.exists(), f"{where}: adds {path}, which does not exist"
        given = add.get("partitionValues") or {}
        assert given.keys() == set(partition), f"{where}: {path} has partition values {given}"
        read = pq.ParquetFile(file).read()
        counted = json.loads(add.get("stats") or "{}").get("numRecords")
        assert counted in (None, read.num_rows), f"{where}: {path} has {read.num_rows} rows"
        own = [name for name in read.column_names if name in columns and name not in partition]
        rows = read.select(own).to_pylist() if own else [{} for _ in range(read.num_rows)]
        gone = read_vector(self.path / table, add.get("deletionVector"))
        constants = {name: value for name, value in given.items() if value is not None}
        return Counter(
            row({**values, **constants}) for at, values in enumerate(rows) if at not in gone
        )


def _live(action: Mapping[str, Any]) -> LiveFile:
    return unquote(action["path"]), vector_id(action.get("deletionVector"))
