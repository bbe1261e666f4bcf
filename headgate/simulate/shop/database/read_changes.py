"""The database's log as changes, in its order."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from pymysqlreplication import BinLogStreamReader  # type: ignore[import-untyped]
from pymysqlreplication.row_event import (  # type: ignore[import-untyped]
    DeleteRowsEvent,
    TableMapEvent,
    UpdateRowsEvent,
    WriteRowsEvent,
)

from headgate.simulate.shop.change import Change, ChangeKind
from headgate.simulate.shop.database.connect import connect_for_log
from headgate.simulate.shop.database.log_place import LogPlace
from headgate.simulate.shop.database.logged_table import LoggedTable

if TYPE_CHECKING:
    from headgate.local import Database


def read_changes(database: Database, name: str, start: LogPlace, end: LogPlace) -> Iterator[Change]:
    """The changes of one database's rows that the log has between two places."""
    reader = BinLogStreamReader(
        connection_settings={},
        pymysql_wrapper=partial(connect_for_log, database),
        # The server ends a reader when another one comes with the same number.
        server_id=secrets.randbelow(2**31) + 2,
        resume_stream=True,
        log_file=start.file,
        log_pos=start.position,
        only_events=[TableMapEvent, WriteRowsEvent, UpdateRowsEvent, DeleteRowsEvent],
        only_schemas=[name],
        enable_logging=False,
    )
    tables: dict[int, LoggedTable] = {}
    with closing(reader):
        for event in reader:
            place = LogPlace(reader.log_file, event.packet.log_pos)
            if place > end:
                return
            if isinstance(event, TableMapEvent):
                tables[event.table_id] = LoggedTable.described(event)
            else:
                at = datetime.fromtimestamp(event.timestamp, UTC)
                yield from _RowEvent(tables[event.table_id], place, at).changes(event)


@dataclass(frozen=True)
class _RowEvent:
    """What all rows of one event have in common."""

    table: LoggedTable
    place: LogPlace
    at: datetime

    def changes(self, event: Any) -> Iterator[Change]:
        for row in event.rows:
            if isinstance(event, WriteRowsEvent):
                yield self._change("INSERT", row["values"])
            elif isinstance(event, DeleteRowsEvent):
                yield self._change("DELETE", row["values"])
            else:
                before, after = row["before_values"], row["after_values"]
                if self.table.key(before) == self.table.key(after):
                    yield self._change("UPDATE", after)
                else:
                    yield self._change("UPDATE-DELETE", before)
                    yield self._change("UPDATE-INSERT", after)

    def _change(self, kind: ChangeKind, logged: dict[str, object]) -> Change:
        return Change(
            self.table.database,
            self.table.name,
            self.table.columns,
            self.table.primary_key,
            kind,
            self.table.values(logged),
            self.place.file,
            self.place.position,
            self.at,
        )
