"""What would let a record out of quarantine."""

from __future__ import annotations

from headgate.quarantine.reason import Reason

_REMEDIES = {
    Reason.TOO_LARGE: "raise `max_record_bytes` or, of a file, `max_file_bytes`, then replay",
    Reason.SCHEMA_UNKNOWN: "register the schema under this id, then replay",
    Reason.SCHEMA_REFUSED: "mend the schema in the registry, then replay",
    Reason.TOO_MANY_TABLES: "raise `max_tables`, then replay",
    Reason.CONTRACT_TABLES: "let `contract` make the table, then replay",
    Reason.CONTRACT_COLUMNS: "let `contract` add the column, then replay",
    Reason.CONTRACT_TYPES: "let `contract` take the type, then replay",
    Reason.EXPECTATION: "if the rule in `expect` is wrong, change it, then replay",
    Reason.FILE_UNREADABLE: "put the mended file there under a new name; this one can be dropped",
    Reason.CHANGE_UNREADABLE: "have the source tell it again; this one can be dropped",
    Reason.KEY_MISSING: "name the table's key in `envelope.datastream.keys`, then replay",
    Reason.ORDER_UNKNOWN: "name the logs in order in `envelope.datastream.lineages`, then replay",
    Reason.TOO_LATE: "raise `merge.horizon`, then replay",
}
_ENVELOPE = {
    Reason.ENVELOPE_UNDECODABLE,
    Reason.MAGIC_BYTE_WRONG,
    Reason.MESSAGE_INDEX_WRONG,
    Reason.ROUTE_MISSING,
    Reason.ROUTE_UNUSABLE,
    Reason.SCHEMA_ID_MISSING,
    Reason.PAYLOAD_MISSING,
}


def remedy(reason: str) -> str:
    """In a few words; a reason of a newer version has none of its own."""
    if reason in _ENVELOPE:
        return "replay if `envelope` was wrong; otherwise the sender must send it again"
    known = {each.value: text for each, text in _REMEDIES.items()}
    return known.get(reason, "the sender must send it again; this one can be dropped")
