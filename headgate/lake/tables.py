"""Delta tables of a lake: their names, how they are opened, and how they are read."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatchcase
from itertools import compress

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError

from headgate.config.location import is_remote
from headgate.config.storage import options_of
from headgate.errors import LandingError
from headgate.lake.log import LOG
from headgate.lake.storage import MAX_REQUESTS, is_folder, list_folders

TableError = DeltaError
"""Raised by reading or writing a table."""

CommitConflict = CommitFailedError
"""Raised by a commit that lost against a concurrent one."""


class NotWritable(DeltaError):
    """Raised before anything is written, for a table that only another engine can write."""


class CatalogManaged(LandingError, NotWritable):
    """Raised for a table of which only its catalog knows the newest version."""

    def __init__(self, url: str) -> None:
        super().__init__(
            "table-catalog-managed",
            f"table {url.rpartition('/')[2]} is managed by a catalog: its log alone does not say "
            "which version is the newest",
            hint="let the pipeline have tables of its own, and use this one through its catalog",
            where=url,
        )


def table_url(lake: str, table: str) -> str:
    """Return the URL of a table, whether it exists or not."""
    return f"{lake.rstrip('/')}/{table}"


def open_table(url: str, version: int | None = None) -> DeltaTable | None:
    """Open the newest version of a table, or an older one; return None if it does not exist."""
    if not is_remote(url) and not is_folder(f"{url}/{LOG}"):
        return None  # which takes delta-rs a millisecond to find out
    try:
        return open_version(url, version)
    except TableNotFoundError:
        return None


def open_version(url: str, version: int | None = None) -> DeltaTable:
    """Open a version of a table, by default the newest."""
    try:
        return DeltaTable(url, version=version, storage_options=options_of(url))
    except TableError as error:
        if _NEEDS_CATALOG in str(error):
            raise CatalogManaged(url) from None
        raise


_NEEDS_CATALOG = "Max catalog version is required"


_CLEAN_UP_EVERY = 100
"""Number of versions between clean-ups, which list the whole log."""


_CLEAN_UP = "delta.enableExpiredLogCleanup"


def is_clean_up_due(version: int, checkpoints: int) -> bool:
    """Whether a checkpoint is one of those after which expired entries are deleted."""
    return version % checkpoints == 0 and version % _CLEAN_UP_EVERY < checkpoints


def write_checkpoint(url: str, clean_up: bool) -> None:
    """Write a checkpoint of a log; with `clean_up`, also delete expired entries."""
    table = open_version(url)
    table.create_checkpoint()
    # delta-rs asks for this property only in the clean-up after its own commits.
    keeps_all = (table.metadata().configuration.get(_CLEAN_UP) or "").lower() == "false"
    if clean_up and not keeps_all:
        table.cleanup_metadata()


def is_table(url: str) -> bool:
    """Whether a URL is that of a Delta table."""
    return DeltaTable.is_deltatable(url, options_of(url))


def tables_in(lake: str, pattern: str = "*") -> list[str]:
    """Return the names of all tables of a lake, or of those that match a pattern."""
    names = [name for name in list_folders(lake) if fnmatchcase(name, pattern)]
    with ThreadPoolExecutor(MAX_REQUESTS) as pool:
        are_tables = pool.map(lambda name: is_folder(f"{table_url(lake, name)}/{LOG}"), names)
        return sorted(compress(names, are_tables))


def added_files(table: DeltaTable, flatten: bool = False) -> pa.Table:
    """Return a row per file of a table, which costs as much as opening it."""
    # As a stream, because pyarrow's own conversion imports pandas.
    return pa.RecordBatchReader.from_stream(table.get_add_actions(flatten=flatten)).read_all()
