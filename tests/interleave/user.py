"""Somebody else who uses a table, with delta-rs or with an engine that writes deletion vectors."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, Field, QueryBuilder, write_deltalake
from deltalake.exceptions import DeltaError
from deltalake.schema import PrimitiveType

from tests.interleave.deletion_vectors import delete_rows
from tests.interleave.watched import Operation, Row, Rows, Version, difference, plain
from tests.interleave.world import World

_NUMBERS = count(1_000_000)


@dataclass
class ChangesRows(Operation):
    """A step that makes rows of those before."""

    name: str
    rows_after: Callable[[Rows], Rows]

    def check(self, table: str, before: Version | None, after: Version) -> None:
        wanted = self.rows_after(before.rows if before else Counter())
        assert after.rows == wanted, difference(after.rows, wanted)


def same_rows(rows: Rows) -> Rows:
    return rows


@dataclass
class User:
    """Does one thing after the other to a table, each between two steps of the others."""

    world: World
    table: str
    kinds: tuple[str, ...]
    """Names of methods."""
    number: str = "n"
    text: str = "s"
    """Its columns: the number is different in each row."""
    made: int = field(default_factory=lambda: next(_NUMBERS) * 1000)

    def act(self) -> None:
        kind = self.world.random.choice(self.kinds)
        # Whoever is about to write an entry has checked everything before: nobody can be sure
        # that a table is not replaced in that instant.
        scheduler = self.world.scheduler
        for _ in range(1000):
            scheduler.step("waits for a turn")
            entry = f"create {self.table}/_delta_log/"
            if kind != "recreate" or not scheduler.announced(entry):
                break
        with scheduler.atomic():
            self.world.lake.observe(scheduler.actor or "")
            if self.table not in self.world.lake.tables:
                return
            scheduler.note(f"user: {kind}")
            try:
                getattr(self, kind)()
            except DeltaError as error:
                scheduler.note(f"user: {kind} ends with {str(error)[:80]}")

    @property
    def delta(self) -> DeltaTable:
        return DeltaTable(self.world.lake.path / self.table)

    @property
    def newest(self) -> Version:
        return self.world.lake.newest(self.table)

    def numbers(self) -> list[int]:
        rows = map(dict, self.newest.rows)
        return sorted({row[self.number] for row in rows if self.number in row})

    def does(self, name: str, after: Callable[[Rows], Rows], step: Callable[[], Any]) -> None:
        """Take a step, whose rows are known."""
        lake, actor = self.world.lake, self.world.scheduler.actor or ""
        with lake.operation(actor, ChangesRows(f"user: {name}", after)):
            step()

    def append(self) -> None:
        new = self.new_row()
        rows = Counter([frozenset((key, value[0]) for key, value in new.items())])
        # A table with other columns keeps them.
        self.does(
            "append",
            lambda before: before + rows,
            lambda: write_deltalake(self.delta, pa.table(new), mode="append", schema_mode="merge"),
        )

    def new_row(self) -> dict[str, list[Any]]:
        self.made += 1
        return {self.number: [self.made], self.text: ["user"]}

    def delete(self) -> None:
        gone = self.world.random.sample(self.numbers(), k=min(2, len(self.numbers())))
        if gone:
            self.does(
                f"delete {gone}",
                lambda before: rows_where(
                    before, lambda values: values.get(self.number) not in gone
                ),
                lambda: self.delta.delete(f"{self.number} IN ({', '.join(map(str, gone))})"),
            )

    def update(self) -> None:
        numbers = self.numbers()
        if not numbers:
            return
        number = self.world.random.choice(numbers)

        def changed(before: Rows) -> Rows:
            return self.with_text(before, number, "updated")

        self.does(
            f"update {number}",
            changed,
            lambda: self.delta.update(
                updates={self.text: "'updated'"}, predicate=f"{self.number} = {number}"
            ),
        )

    def merge(self) -> None:
        numbers = self.numbers()
        if not numbers:
            return
        self.made += 1
        number = self.world.random.choice(numbers)
        columns = {name: f"s.{name}" for name in (self.number, self.text)}
        source = pa.table({self.number: [number, self.made], self.text: ["merged", "user"]})

        def merged(before: Rows) -> Rows:
            inserted = frozenset({(self.number, self.made), (self.text, "user")})
            return self.with_text(before, number, "merged") + Counter([inserted])

        self.does(
            f"merge {number}",
            merged,
            lambda: (
                self.delta.merge(
                    source,
                    f"t.{self.number} = s.{self.number}",
                    source_alias="s",
                    target_alias="t",
                )
                .when_matched_update({self.text: f"s.{self.text}"})
                .when_not_matched_insert(columns)
                .execute()
            ),
        )

    def with_text(self, rows: Rows, number: int, text: str) -> Rows:
        """Return the rows with another text in that of a number."""
        return _mapped(
            rows,
            lambda values: (
                {**values, self.text: text} if values.get(self.number) == number else values
            ),
        )

    def optimize(self) -> None:
        self.does("optimize", same_rows, lambda: self.delta.optimize.compact())

    def restore(self) -> None:
        versions = self.world.lake.tables[self.table]
        if len(versions) < 2:
            return
        back = self.world.random.randint(1, min(4, len(versions) - 1))
        wanted = versions[-1 - back]
        if wanted.partition_columns != versions[-1].partition_columns:
            return
        missing = [
            path
            for path, _ in wanted.files
            if not (self.world.lake.path / self.table / path).exists()
        ]
        if not missing:
            self.does(
                f"restore {wanted.number}",
                lambda _: wanted.rows,
                lambda: self.delta.restore(wanted.number),
            )

    def overwrite(self) -> None:
        new = self.new_row()
        self.does(
            "overwrite",
            lambda _: Counter([frozenset((key, value[0]) for key, value in new.items())]),
            lambda: write_deltalake(
                self.delta, pa.table(new), mode="overwrite", schema_mode="merge"
            ),
        )

    def partition(self) -> None:
        """Write the same rows again, divided by text."""
        query = QueryBuilder().register("stored", self.delta).execute("SELECT * FROM stored")
        rows = pa.table(pa.RecordBatchReader.from_stream(query).read_all())
        if self.text in rows.column_names:
            self.does(
                "partition",
                lambda before: before,
                lambda: write_deltalake(
                    self.delta,
                    rows,
                    mode="overwrite",
                    schema_mode="overwrite",
                    partition_by=[self.text],
                ),
            )

    def add_column(self) -> None:
        self.made += 1
        column = Field(f"u{self.made}", PrimitiveType("string"))
        self.does("add column", same_rows, lambda: self.delta.alter.add_columns([column]))

    def set_property(self) -> None:
        self.made += 1
        properties = {"delta.dataSkippingNumIndexedCols": f"{32 + self.made % 9}"}
        self.does("property", same_rows, lambda: self.delta.alter.set_table_properties(properties))

    def checkpoint(self) -> None:
        self.delta.create_checkpoint()

    def delete_by_vector(self) -> None:
        version = self.newest
        if version.partition_columns:
            return
        has_feature = bool(self.delta.protocol().reader_features)
        adds: dict[str, Any] = {}
        for earlier in self.world.lake.tables[self.table]:
            adds |= {f"{add['path']}": add for add in earlier.all("add")}
        live = [
            adds[path]
            for path, vector in version.files
            if path in adds
            and vector is None
            and "deletionVector" not in adds[path]
            and json.loads(adds[path].get("stats") or "{}").get("numRecords", 0) > 1
        ]
        if not live:
            return
        add = self.world.random.choice(live)

        operation = FewerRows("user: delete by vector")
        actor = self.world.scheduler.actor or ""
        with self.world.lake.operation(actor, operation):
            delete_rows(
                self.world.lake.path / self.table, version.number + 1, add, [0], has_feature
            )

    def recreate(self) -> None:
        """Drop the table, and create one of the same name and columns."""
        columns = self.delta.schema()
        self.world.lake.drop(self.table)
        new = self.new_row()
        rows = Counter([frozenset((key, value[0]) for key, value in new.items())])
        path = self.world.lake.path / self.table
        DeltaTable.create(path, columns)
        self.does("create", lambda _: Counter(), lambda: None)
        for _ in range(self.world.random.randint(0, 3)):
            self.does(
                "append",
                lambda before: before + rows,
                lambda: write_deltalake(path, pa.table(new), mode="append", schema_mode="merge"),
            )


@dataclass
class FewerRows(Operation):
    name: str

    def check(self, table: str, before: Version | None, after: Version) -> None:
        assert before is not None
        assert not after.rows - before.rows
        assert (before.rows - after.rows).total() == 1


def rows_where(rows: Rows, wanted: Callable[[dict[str, Any]], bool]) -> Rows:
    return Counter({row: count for row, count in rows.items() if wanted(dict(row))})


def _mapped(rows: Rows, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Rows:
    changed: Counter[Row] = Counter()
    for row, number in rows.items():
        values = change(dict(row))
        changed[frozenset((name, plain(value)) for name, value in values.items())] += number
    return changed
