"""Commits of other writers to tables that are computed from others, such as merged tables.

A restore of such a table, or a change of its rows, leaves the mark that says which version of its
source it includes. So the table has to be computed from all of its source again.
"""

from __future__ import annotations

from headgate.lake.log import LogEntry
from headgate.lake.snapshot import Snapshot


def changed_by_others(table: Snapshot, app: str, written: int | None) -> bool:
    """Whether others have changed rows since a version that was ours, or else our last mark.

    Our commits have a mark of an app whose ID begins with `app`. To combine files changes no rows.
    """
    is_known = written is not None and written <= table.version
    first = written + 1 if is_known and written is not None else 0
    for version in range(table.version, first - 1, -1):
        try:
            entry = LogEntry.read(table.url, version)
        except FileNotFoundError:
            return True  # unknown: its entry has expired
        if any(marked.startswith(app) for marked in entry.marks):
            if not is_known:
                return False
        elif entry.changes_rows:
            return True
    return False
