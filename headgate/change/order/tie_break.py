"""What decides between changes at the same position of the source's log: their kind, then uuid.

A statement that shifts keys, like `UPDATE seats SET id = id + 1`, is one event with one position,
and in it the same key is left by one row (UPDATE-DELETE) and taken by another (UPDATE-INSERT).
After the statement the key is there, so that leaving counts before taking. Otherwise a row is
made (INSERT), then changed, then gone (DELETE). The uuid only makes the outcome the same every
time.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from headgate.change.order.encoding import Part

_RANKS = {"UPDATE-DELETE": "0", "INSERT": "1", "UPDATE": "2", "UPDATE-INSERT": "2", "DELETE": "3"}
_KINDS = pa.array(_RANKS.keys(), pa.string())
_DIGITS = pa.array(_RANKS.values(), pa.string())
_LONGEST_UUID = 64
_PLAIN = r"\A[0-9A-Za-z_-]*\z"


def kind_part(changes: pa.RecordBatch) -> Part:
    """The digit of each kind of change."""
    places = pc.index_in(changes.column("_change_type"), value_set=_KINDS)
    return Part(_DIGITS.take(places), f"the kind of change is none of {', '.join(_RANKS)}")


def uuid_part(changes: pa.RecordBatch) -> Part:
    """The uuid; a missing one is below all others."""
    uuids = changes.column("_uuid").fill_null("")
    short = pc.less_equal(pc.binary_length(uuids), _LONGEST_UUID)
    plain = pc.match_substring_regex(uuids, _PLAIN)
    usable = pc.and_(short, plain)
    return Part(pc.if_else(usable, uuids, None), "the uuid is too long or has odd characters")
