"""Why a record is in quarantine instead of in its table."""

from __future__ import annotations

from enum import StrEnum


class Reason(StrEnum):
    """A stable code for each cause, with a text for people."""

    text: str

    def __new__(cls, code: str, text: str) -> Reason:
        member = str.__new__(cls, code)
        member._value_ = code
        member.text = text
        return member

    NULL_VALUE = "null_value", "The record has no value."
    TOO_LARGE = "too_large", "The record exceeds `max_record_bytes`, or the file `max_file_bytes`."
    ENVELOPE_UNDECODABLE = "envelope_undecodable", "The envelope cannot be opened."
    MAGIC_BYTE_WRONG = "magic_byte_wrong", "The first byte does not belong to Confluent's framing."
    MESSAGE_INDEX_WRONG = (
        "message_index_wrong",
        "The message index is malformed or out of range.",
    )
    MESSAGE_AMBIGUOUS = (
        "message_ambiguous",
        "The schema has several messages, and nothing says which of them the payload is.",
    )
    MESSAGE_UNKNOWN = (
        "message_unknown",
        "The schema has no message of the name in `payload_message`, or no message at all.",
    )
    ROUTE_MISSING = "route_missing", "The envelope names no route."
    ROUTE_UNUSABLE = "route_unusable", "The route is empty, too long or only punctuation."
    SCHEMA_ID_MISSING = "schema_id_missing", "The envelope names no schema id."
    PAYLOAD_MISSING = "payload_missing", "The envelope has no payload."
    SCHEMA_UNKNOWN = "schema_unknown", "The registry does not know the schema id."
    SCHEMA_REFUSED = "schema_refused", "The schema cannot be compiled or is too large."
    SCHEMA_KIND_UNSUPPORTED = "schema_kind_unsupported", "The schema is neither Protobuf nor Avro."
    PAYLOAD_UNDECODABLE = "payload_undecodable", "The payload does not match its own schema."
    UNKNOWN_FIELDS = "unknown_fields", "The payload has fields that its own schema does not have."
    TOO_MANY_TABLES = "too_many_tables", "Another table would exceed `max_tables`."
    CONTRACT_TABLES = "contract_tables", "The contract does not allow a table for the route."
    CONTRACT_COLUMNS = "contract_columns", "The contract does not allow a new column."
    CONTRACT_TYPES = "contract_types", "The contract does not allow a new type."
    EXPECTATION = "expectation", "A rule of `expect` does not hold."
    FILE_UNREADABLE = "file_unreadable", "The file is not an Avro or JSON file of changes."
    CHANGE_UNREADABLE = "change_unreadable", "The change names no table or has no row."
    KEY_MISSING = "key_missing", "The change has no value for its table's key."
    ORDER_UNKNOWN = "order_unknown", "The order of the change among others cannot be determined."
    TOO_LATE = (
        "too_late",
        "The change is older than the horizon up to which deleted rows are remembered.",
    )
    UUID_REUSED = (
        "uuid_reused",
        "Another change with the same id but other contents has landed.",
    )


_REMEDIES = {
    Reason.TOO_LARGE: "raise `max_record_bytes` or, for a file, `max_file_bytes`, then replay",
    Reason.SCHEMA_UNKNOWN: "register the schema under this id, then replay",
    Reason.SCHEMA_REFUSED: "fix the schema in the registry, then replay",
    Reason.MESSAGE_AMBIGUOUS: "name the message in `envelope.wrapper.payload_message`, then replay",
    Reason.MESSAGE_UNKNOWN: "correct `envelope.wrapper.payload_message`, then replay",
    Reason.UNKNOWN_FIELDS: (
        "correct `payload_message`, or set `contract.unknown_fields` to `keep` or `ignore`,"
        " then replay"
    ),
    Reason.TOO_MANY_TABLES: "raise `max_tables`, then replay",
    Reason.CONTRACT_TABLES: "allow the table in `contract`, then replay",
    Reason.CONTRACT_COLUMNS: "allow the column in `contract`, then replay",
    Reason.CONTRACT_TYPES: "allow the type in `contract`, then replay",
    Reason.EXPECTATION: "if the rule in `expect` is wrong, change it, then replay",
    Reason.FILE_UNREADABLE: "add the fixed file under a new name; this one can be dropped",
    Reason.CHANGE_UNREADABLE: "have the source send it again; this one can be dropped",
    Reason.KEY_MISSING: "name the table's key in `envelope.datastream.keys`, then replay",
    Reason.ORDER_UNKNOWN: "name the logs in order in `envelope.datastream.lineages`, then replay",
    Reason.TOO_LATE: "raise `merge.horizon`, then replay",
    Reason.UUID_REUSED: "have the source send it under an id of its own; this one can be dropped",
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
    """Return what lets a record land; a reason of a newer version has a general one."""
    if reason in _ENVELOPE:
        return "replay if `envelope` was wrong; otherwise the sender must send it again"
    known = {each.value: text for each, text in _REMEDIES.items()}
    return known.get(reason, "the sender must send it again; this one can be dropped")
