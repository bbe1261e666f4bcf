"""First step in the executors: read change files into rows of change logs.

Every rejection is decided here, where the bytes of the record are at hand for the quarantine.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import pyarrow as pa

from headgate.cdc.accept import AcceptedChanges, accept_changes
from headgate.cdc.chunk import Chunk, ChunkMetadata
from headgate.cdc.plan import FILES, ChangePlan
from headgate.cdc.source_tables import route_of
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
    """Read the files of a task, one at a time in memory."""
    try:
        for batch in batches:
            for row in range(len(batch)):
                record = as_records(pa.Table.from_batches([batch.slice(row, 1)]))
                for chunk in _FileReader(plan, record).chunks():
                    yield from chunk.to_batches()
    except HeadgateError as error:
        metadata = ChunkMetadata(error=(type(error).__name__, *error.parts))
        yield from Chunk("", pa.table({}), metadata).to_batches()


@dataclass
class _FileReader:
    """Reads one change file, or one record of the quarantine."""

    plan: ChangePlan
    record: pa.Table
    left_out: int = 0
    landed: int = 0
    has_schema: bool = False
    raw: list[bytes | None] = field(default_factory=list)
    positions: list[int | None] = field(default_factory=list)
    rejected: list[Rejected] = field(default_factory=list)
    blocked: list[BlockedSchemaChange] = field(default_factory=list)
    """Schema changes blocked by the contract, for tables that no row of the file landed in."""
    checked: list[ExpectationResult] = field(default_factory=list)
    """Expectation results for those tables."""

    def chunks(self) -> Iterator[Chunk]:
        if self.plan.from_quarantine:
            yield from self._replay()
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
        yield Chunk(self.plan.tables.files, self._file_row(file))

    def _replay(self) -> Iterator[Chunk]:
        """Read a record of the quarantine; keep it there if any of its changes cannot land."""
        value = self.record["value"][0]
        content = value.as_py() if value.is_valid else self._reread()
        if content is not None:
            yield from self._opened(content, open_file(content))
        if self.rejected:
            yield self._kept_in_quarantine()

    def _reread(self) -> bytes | None:
        """Read the file of a record that was too large to keep its bytes in quarantine."""
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
        """Return whether the file may still be growing."""
        return file.modified > self.plan.began - self.plan.files.settle.milliseconds

    def _opened(self, content: bytes, opened: OpenedFile) -> Iterator[Chunk]:
        self.has_schema = opened.has_schema
        if opened.unreadable is not None or opened.unfinished:
            detail = opened.unreadable or "it ends in the middle of a record"
            self._reject(content, None, Reason.FILE_UNREADABLE, detail)
        for record in opened.rejected:
            route = None if record.source is None else route_of(record.source)
            self._reject(record.raw, record.position, record.reason, record.detail, route)
        for changes in opened.changes:
            if not self.plan.files.takes(pattern_name(changes.source)):
                self._leave_out(changes)
                continue
            yield from self._accept(content, changes)

    def _leave_out(self, changes: Changes) -> None:
        self.left_out += len(changes.positions)
        if self.plan.from_quarantine:
            detail = "`source.files` leaves its table out"
            route = route_of(changes.source)
            self._reject(None, None, Reason.CONTRACT_TABLES, detail, route)

    def _accept(self, content: bytes, changes: Changes) -> Iterator[Chunk]:
        route = route_of(changes.source)
        file = self.record["file"][0].as_py() or ""
        for accepted in accept_changes(self.plan, changes, file):
            rejected = {
                int(changes.positions[row]): rejection
                for row, rejection in accepted.rejected.items()
            }
            extracted = {} if self.plan.from_quarantine else rejected
            raw = dict(extract_records(content, extracted)) if extracted else {}
            for position, (reason, detail) in rejected.items():
                self._reject(raw.get(position), position, reason, detail, route)
            if len(accepted.rows):
                self.landed += len(accepted.rows)
                yield self._chunk(route, accepted)
            else:
                self.blocked += accepted.blocked
                self.checked += accepted.expectations

    def _chunk(self, route: str, accepted: AcceptedChanges) -> Chunk:
        rows = accepted.rows
        path = pa.repeat(pa.scalar(self.record["file"][0].as_py(), pa.string()), len(rows))
        columns = accepted.columns if self.has_schema else None
        metadata = ChunkMetadata(
            route, accepted.lineages, accepted.blocked, columns, expectations=accepted.expectations
        )
        return Chunk(accepted.table, rows.append_column("_file", path), metadata)

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
        return self._quarantine_chunk(records, self.rejected)

    def _kept_in_quarantine(self) -> Chunk:
        """Return the record unchanged; a later replay skips those of its changes that landed."""
        first, count = self.rejected[0], len(self.rejected)
        detail = first.detail if count == 1 else f"{count} changes of it, the first: {first.detail}"
        return self._quarantine_chunk(self.record, [replace(first, detail=detail)])

    def _quarantine_chunk(self, records: pa.Table, rejected: Sequence[Rejected]) -> Chunk:
        now = pa.scalar(datetime.now(UTC), pa.timestamp("us", "UTC"))
        rows = quarantine_rows(records, rejected, self.plan.version, now)
        metadata = ChunkMetadata(blocked=tuple(self.blocked), expectations=tuple(self.checked))
        return Chunk(self.plan.quarantine, rows, metadata)

    def _file_row(self, file: LandedFile) -> pa.Table:
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
    """Count rows of the quarantine by reason."""
    return dict(Counter(rows["reason"].to_pylist()))
