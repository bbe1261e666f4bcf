"""In the executors, first: change files in, rows of change logs out.

Everything that keeps a change out of its log is found here, where its file is open and its bytes
are at hand.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import pyarrow as pa

from headgate.cdc.admit import Admitted, admit_changes
from headgate.cdc.chunk import Chunk, Told
from headgate.cdc.known_source import route_of
from headgate.cdc.plan import FILES, ChangePlan
from headgate.engine.quarantine_table import quarantine_rows
from headgate.envelopes.datastream.changes import Changes, OpenedFile
from headgate.envelopes.datastream.file import extract_records, open_file
from headgate.envelopes.opened import Rejected
from headgate.errors import HeadgateError
from headgate.lake.names import pattern_name
from headgate.lake.staged import BlockedSchemaChange, ExpectationResult
from headgate.reasons import Reason
from headgate.schema.origin import as_records
from headgate.sources.files import LandedFile, read_local


def open_changes(plan: ChangePlan, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """One pass over the files of a task; each is held in memory alone."""
    try:
        for batch in batches:
            for row in range(len(batch)):
                record = as_records(pa.Table.from_batches([batch.slice(row, 1)]))
                for chunk in _OneFile(plan, record).chunks():
                    yield from chunk.packed()
    except HeadgateError as error:
        told = Told(error=(type(error).__name__, *error.parts))
        yield from Chunk("", pa.table({}), told).packed()


@dataclass
class _OneFile:
    """A file, or a record of the quarantine, which is a file of its own."""

    plan: ChangePlan
    record: pa.Table
    left_out: int = 0
    landed: int = 0
    has_schema: bool = False
    raw: list[bytes | None] = field(default_factory=list)
    positions: list[int | None] = field(default_factory=list)
    rejected: list[Rejected] = field(default_factory=list)
    withheld: list[BlockedSchemaChange] = field(default_factory=list)
    """What the contract kept out, of tables that none of its rows are for."""
    checked: list[ExpectationResult] = field(default_factory=list)
    """What was expected of them."""

    def chunks(self) -> Iterator[Chunk]:
        if self.plan.from_quarantine:
            yield from self._again()
            return
        content, file = self._content()
        if file.size > self.plan.max_file_bytes:
            self._reject(None, None, Reason.TOO_LARGE, f"{file.size} bytes")
        else:
            opened = open_file(content)
            if opened.unfinished and self._is_fresh(file):
                return
            yield from self._opened(content, opened)
        if self.rejected:
            yield self._quarantined()
        yield Chunk(self.plan.tables.files, self._row(file))

    def _again(self) -> Iterator[Chunk]:
        """A row of the quarantine: what of it can land, and itself if anything cannot."""
        value = self.record["value"][0]
        content = value.as_py() if value.is_valid else self._read_again()
        if content is not None:
            yield from self._opened(content, open_file(content))
        if self.rejected:
            yield self._kept()

    def _read_again(self) -> bytes | None:
        """The file of a row that has no bytes, as it was too large for the quarantine."""
        path = self.record["file"][0].as_py()
        try:
            size = os.path.getsize(path)
            if size <= self.plan.max_file_bytes:
                return read_local(path)[0]
            detail = f"{size} bytes"
        except OSError as error:
            detail = f"it cannot be read again: {error.strerror}"
        self._reject(None, None, Reason.TOO_LARGE, detail)
        return None

    def _content(self) -> tuple[bytes, LandedFile]:
        value, path = self.record["value"][0], self.record["file"][0].as_py()
        if not value.is_valid:
            return read_local(path)
        content = value.as_py()
        modified = self.record["timestamp"][0].as_py()
        return content, LandedFile(path, len(content), int(modified.timestamp() * 1000))

    def _is_fresh(self, file: LandedFile) -> bool:
        """Whether somebody may still be writing it."""
        return file.modified > self.plan.began - self.plan.files.settle.milliseconds

    def _opened(self, content: bytes, opened: OpenedFile) -> Iterator[Chunk]:
        self.has_schema = opened.has_schema
        if opened.unreadable is not None or opened.unfinished:
            detail = opened.unreadable or "it ends in the middle of a record"
            self._reject(content, None, Reason.FILE_UNREADABLE, detail)
        for one in opened.rejected:
            route = None if one.source is None else route_of(one.source)
            self._reject(one.raw, one.position, one.reason, one.detail, route)
        for changes in opened.changes:
            if not self.plan.files.takes(pattern_name(changes.source)):
                self._leave_out(changes)
                continue
            yield from self._admitted(content, changes)

    def _leave_out(self, changes: Changes) -> None:
        self.left_out += len(changes.positions)
        if self.plan.from_quarantine:
            detail = "`source.files` leaves its table out"
            route = route_of(changes.source)
            self._reject(None, None, Reason.CONTRACT_TABLES, detail, route)

    def _admitted(self, content: bytes, changes: Changes) -> Iterator[Chunk]:
        route = route_of(changes.source)
        file = self.record["file"][0].as_py() or ""
        for admitted in admit_changes(self.plan, changes, file):
            whys = {int(changes.positions[row]): why for row, why in admitted.kept_out.items()}
            wanted = {} if self.plan.from_quarantine else whys
            alone = dict(extract_records(content, wanted)) if wanted else {}
            for position, (reason, detail) in whys.items():
                self._reject(alone.get(position), position, reason, detail, route)
            if len(admitted.rows):
                self.landed += len(admitted.rows)
                yield self._chunk(route, admitted)
            else:
                self.withheld += admitted.withheld
                self.checked += admitted.expectations

    def _chunk(self, route: str, admitted: Admitted) -> Chunk:
        rows = admitted.rows
        path = pa.repeat(pa.scalar(self.record["file"][0].as_py(), pa.string()), len(rows))
        columns = admitted.columns if self.has_schema else None
        told = Told(
            route, admitted.lineages, admitted.withheld, columns, expectations=admitted.expectations
        )
        return Chunk(admitted.table, rows.append_column("_file", path), told)

    def _reject(
        self,
        raw: bytes | None,
        position: int | None,
        reason: Reason,
        detail: str,
        route: str | None = None,
    ) -> None:
        self.rejected.append(Rejected(len(self.rejected), reason, detail, route))
        self.raw.append(raw)
        self.positions.append(position)

    def _quarantined(self) -> Chunk:
        count = len(self.rejected)
        records = self.record.take(pa.array([0] * count))
        for name, values in (("value", self.raw), ("offset", self.positions)):
            at = records.schema.get_field_index(name)
            records = records.set_column(
                at, records.schema.field(at), pa.array(values, records.schema.field(at).type)
            )
        return self._rows_of_quarantine(records, self.rejected)

    def _kept(self) -> Chunk:
        """The very row that it was, whatever of it has landed: no change lands twice."""
        first, count = self.rejected[0], len(self.rejected)
        detail = first.detail if count == 1 else f"{count} changes of it, the first: {first.detail}"
        return self._rows_of_quarantine(self.record, [replace(first, detail=detail)])

    def _rows_of_quarantine(self, records: pa.Table, rejected: Sequence[Rejected]) -> Chunk:
        now = pa.scalar(datetime.now(UTC), pa.timestamp("us", "UTC"))
        rows = quarantine_rows(records, rejected, self.plan.version, now)
        told = Told(withheld=tuple(self.withheld), expectations=tuple(self.checked))
        return Chunk(self.plan.quarantine, rows, told)

    def _row(self, file: LandedFile) -> pa.Table:
        row = {
            "path": file.path,
            "size": file.size,
            "modified": file.modified,
            "changes": self.landed,
            "rejected": len(self.rejected),
            "left_out": self.left_out,
            "batch": self.plan.version,
        }
        return pa.Table.from_pylist([row], FILES)


def reasons_of(rows: pa.Table) -> dict[str, int]:
    return dict(Counter(rows["reason"].to_pylist()))
