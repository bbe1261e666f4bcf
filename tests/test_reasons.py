from __future__ import annotations

import re

from headgate.reasons import Reason


def test_every_reason_has_a_code_and_says_itself() -> None:
    for reason in Reason:
        assert re.fullmatch("[a-z_]+", reason.value)
        assert reason.text.endswith(".")


def test_reason_is_its_code() -> None:
    assert f"{Reason.NULL_VALUE}" == "null_value"


def test_codes_stay_what_they_are() -> None:
    assert sorted(Reason) == [
        "change_unreadable",
        "contract_columns",
        "contract_tables",
        "contract_types",
        "envelope_undecodable",
        "expectation",
        "file_unreadable",
        "key_missing",
        "magic_byte_wrong",
        "message_ambiguous",
        "message_index_wrong",
        "message_unknown",
        "null_value",
        "order_unknown",
        "payload_missing",
        "payload_undecodable",
        "route_missing",
        "route_unusable",
        "schema_id_missing",
        "schema_kind_unsupported",
        "schema_refused",
        "schema_unknown",
        "too_large",
        "too_late",
        "too_many_tables",
        "unknown_fields",
        "uuid_reused",
    ]
