"""First step in the executors: read change files into rows of change logs.

Every rejection is decided here, where the bytes of the record are at hand for the quarantine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa

from headgate.cdc.accept import AcceptedChanges, accept_changes
from headgate.cdc.chunk import Chunk, ChunkMetadata
from headgate.cdc.plan import FILES, ChangePlan
from headgate.cdc.rejections import Rejections, known_rejections
from headgate.cdc.source_tables import route_of
from headgate.engine.quarantine_table import quarantine_rows
from headgate.envelopes.datastream.changes import Changes, OpenedFile
from headgate.envelopes.datastream.file import extract_records, open_file
from headgate.errors import HeadgateError
from headgate.lake.names import pattern_name
from headgate.lake.staged import BlockedSchemaChange, ExpectationResult
from headgate.reasons import Reason
from headgate.schema.origin import as_records
from headgate.sources.files import FIRST_BATCH
from headgate.sources.folder import LandedFile, SkippedFile, milliseconds, read_local


def open_changes(plan: ChangePlan, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Read the files of a task, one at a time in memory."""
    try:
        for batch in batches:
            files = pa.Table.from_batches([batch])
            records = as_records(files)
            known = FIRST_BATCH in files.column_names
            firsts = files[FIRST_BATCH].to_pylist() if known else [None] * len(files)
            read: list[dict[str, object]] = []
            for row, first in enumerate(firsts):
                for chunk in _FileReader(plan, records.slice(row, 1), read, first).chunks():
                    yield from chunk.to_batches()
            if read:
                rows = pa.Table.from_pylist(read, FILES)
                yield from Chunk(plan.tables.files, rows).to_batches()
    except HeadgateError as error:
        metadata = ChunkMetadata(error=(type(error).__name__, *error.parts))
        yield from Chunk("", pa.table({}), metadata).to_batches()


@dataclass
class _FileReader:
    """Reads one change file, or one record of the quarantine."""

    plan: ChangePlan
    record: pa.Table
    read: list[dict[str, object]]
    """Rows of the table of files, which get one of this file if it is read."""
    first_batch: int | None = None
    """The batch that first read a file of this path; None if none did."""
    left_out: int = 0
    landed: int = 0
    has_schema: bool = False
    rejected: Rejections = field(default_factory=Rejections)
    blocked: list[BlockedSchemaChange] = field(default_factory=list)
    """Schema changes blocked by the contract, for tables that no row of the file landed in."""
    checked: list[ExpectationResult] = field(default_factory=list)
    """Expectation results for those tables."""

    def chunks(self) -> Iterator[Chunk]:
        if self.plan.from_quarantine:
            yield from self._replay()
            return
        try:
            content, file = self._content()
        except SkippedFile:
            return  # The source lists it again, and reports why.
        if content is None:
            self.rejected.add(Reason.TOO_LARGE, f"{file.size} bytes")
        else:
            opened = open_file(content)
            if opened.unfinished and self._is_fresh(file):
                return
            yield from self._opened(opened)
            self._extract(content)
        if self.rejected.count:
            yield from self._quarantined(content, file.size)
        self.read.append(self._file_row(file))

    def _replay(self) -> Iterator[Chunk]:
        """Read a record of the quarantine; keep it there if any of its changes cannot land."""
        value = self.record["value"][0]
        content = value.as_py() if value.is_valid else self._reread()
        if content is not None:
            yield from self._opened(open_file(content))
        if self.rejected.count:
            yield self._kept_in_quarantine()

    def _reread(self) -> bytes | None:
        """Read the file of a record that was too large to keep its bytes in quarantine."""
        path = self.record["file"][0].as_py()
        try:
            content, file = read_local(self.plan.files.path, path, self.plan.max_file_bytes)
            detail = f"{file.size} bytes"
        except SkippedFile as error:
            content, detail = None, f"it cannot be read again: {error}"
        if content is None:
            self.rejected.add(Reason.TOO_LARGE, detail)
        return content

    def _content(self) -> tuple[bytes | None, LandedFile]:
        """Return the content, unless it is too large."""
        value, path = self.record["value"][0], self.record["file"][0].as_py()
        if not value.is_valid:
            return read_local(self.plan.files.path, path, self.plan.max_file_bytes)
        content = value.as_py()
        modified = milliseconds(self.record["timestamp"][0].as_py())
        file = LandedFile(path, len(content), modified)
        return content if file.size <= self.plan.max_file_bytes else None, file

    def _is_fresh(self, file: LandedFile) -> bool:
        """Return whether the file may still be growing."""
        return file.modified > self.plan.began - self.plan.files.settle.milliseconds

    def _opened(self, opened: OpenedFile) -> Iterator[Chunk]:
        self.has_schema = opened.has_schema
        if opened.unreadable is not None or opened.unfinished:
            detail = opened.unreadable or "it ends in the middle of a record"
            self.rejected.add(Reason.FILE_UNREADABLE, detail)
        for record in opened.rejected:
            route = None if record.source is None else route_of(record.source)
            self.rejected.raw[record.position] = record.raw
            self.rejected.add(record.reason, record.detail, route, record.position)
        self.rejected.count += opened.more_rejected
        for changes in opened.changes:
            if not self.plan.files.takes(pattern_name(changes.source)):
                self._leave_out(changes)
                continue
            yield from self._accept(self._as_in_file(changes))

    def _as_in_file(self, changes: Changes) -> Changes:
        """Return a single change of the quarantine with its position in the file it came from."""
        position = self._position
        return changes if position is None else replace(changes, positions=np.array([position]))

    @property
    def _position(self) -> int | None:
        """The position of a single record; None if the content is that of a whole file."""
        position: int | None = self.record["offset"][0].as_py()
        return position if self.record["value"][0].is_valid else None

    def _leave_out(self, changes: Changes) -> None:
        self.left_out += len(changes.positions)
        if self._position is not None:
            detail = "`source.files` leaves its table out"
            self.rejected.add(Reason.CONTRACT_TABLES, detail, route_of(changes.source))

    def _accept(self, changes: Changes) -> Iterator[Chunk]:
        route = route_of(changes.source)
        file = self.record["file"][0].as_py() or ""
        for accepted in accept_changes(self.plan, changes, file):
            for row, (reason, detail) in accepted.rejected.items():
                self.rejected.add(reason, detail, route, int(changes.positions[row]))
            if len(accepted.rows):
                self.landed += len(accepted.rows)
                yield self._chunk(route, accepted)
            else:
                self.blocked += accepted.blocked
                self.checked += accepted.expectations

    def _extract(self, content: bytes) -> None:
        """Extract the bytes of all rejected changes in one pass, unless they are too many."""
        wanted = self.rejected.without_bytes
        if wanted and not self.rejected.are_too_many:
            self.rejected.extract(extract_records(content, wanted))

    def _chunk(self, route: str, accepted: AcceptedChanges) -> Chunk:
        rows = accepted.rows
        path = pa.repeat(pa.scalar(self.record["file"][0].as_py(), pa.string()), len(rows))
        columns = accepted.columns if self.has_schema else None
        metadata = ChunkMetadata(
            route, accepted.lineages, accepted.blocked, columns, expectations=accepted.expectations
        )
        return Chunk(accepted.table, rows.append_column("_file", path), metadata)

    def _quarantined(self, content: bytes | None, size: int) -> Iterator[Chunk]:
        """Yield the rejected changes, except for those that the quarantine has already."""
        known: set[str] = set()
        if self.first_batch is not None:
            known = known_rejections(self.plan, self.record["file"][0].as_py(), self.first_batch)
        rows = self.rejected.rows(self.plan, self.record, content, size, known)
        if len(rows):
            yield self._quarantine_chunk(rows)

    def _kept_in_quarantine(self) -> Chunk:
        """Return the record unchanged; a later replay skips those of its changes that landed."""
        now = pa.scalar(datetime.now(UTC), pa.timestamp("us", "UTC"))
        rejected = [self.rejected.as_one()]
        return self._quarantine_chunk(
            quarantine_rows(self.record, rejected, self.plan.version, now)
        )

    def _quarantine_chunk(self, rows: pa.Table) -> Chunk:
        metadata = ChunkMetadata(blocked=tuple(self.blocked), expectations=tuple(self.checked))
        return Chunk(self.plan.quarantine, rows, metadata)

    def _file_row(self, file: LandedFile) -> dict[str, object]:
        return {
            "path": file.path,
            "size": file.size,
            "modified": file.modified,
            "changes": self.landed,
            "rejected": self.rejected.count,
            "left_out": self.left_out,
            "batch": self.plan.version,
        }


def reasons_of(rows: pa.Table) -> dict[str, int]:
    """Count rows of the quarantine by reason."""
    return dict(Counter(rows["reason"].to_pylist()))
