"""The same records in two tables."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Hashable, Iterator
from hashlib import blake2b

import pyarrow as pa

from headgate.schema.origin import SOURCE_COLUMNS, as_records


def find_again(records: pa.Table, among: pa.Table) -> list[int]:
    """Where in `among` each of the records is.

    Not every source numbers its records, so all of a record is compared. Where several are alike
    in every respect, it does not matter which is which.
    """
    places: dict[Hashable, deque[int]] = defaultdict(deque)
    for row, identity in enumerate(_identities(among)):
        places[identity].append(row)
    return [places[identity].popleft() for identity in _identities(records)]


def _identities(records: pa.Table) -> Iterator[Hashable]:
    moments = records.column("timestamp").cast(pa.int64())
    plain = [records.column(name) for name in ("topic", "partition", "offset", "key", "file")]
    columns = [column.to_pylist() for column in (*plain, moments)]
    headers = (repr(each.as_py()) for each in records.column("headers"))
    return zip(_digests(records.column("value")), headers, *columns, strict=True)


def _digests(values: pa.ChunkedArray) -> Iterator[bytes | None]:
    for value in values:
        yield blake2b(value.as_buffer(), digest_size=16).digest() if value.is_valid else None


def records_of(quarantined: pa.Table) -> pa.Table:
    """Rows of the quarantine as the records that they were."""
    names = {f"_{field.name}": field.name for field in SOURCE_COLUMNS}
    columns = [names.get(name, name) for name in quarantined.column_names]
    return as_records(quarantined.rename_columns(columns))
