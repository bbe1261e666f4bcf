"""The rules of a contract for one table."""

from __future__ import annotations

import pickle

from headgate.config.contract import Contract, Mode, Rules, TableRules, UnknownFields

STRICT = Contract(columns=Mode.FREEZE, per_table={"silver_test_*": TableRules(types="freeze")})


def test_first_matching_pattern_overrides_the_rules_of_a_table() -> None:
    assert STRICT.for_table("silver_chess") == Rules(columns=Mode.FREEZE)
    assert STRICT.for_table("silver_test_1") == Rules(columns=Mode.FREEZE, types=Mode.FREEZE)


def test_unknown_fields_are_set_for_all_tables_or_by_pattern() -> None:
    contract = Contract(
        unknown_fields="keep", per_table={"a*": {"unknown_fields": "ignore"}, "b*": "freeze"}
    )
    assert Contract().for_table("a").unknown_fields is UnknownFields.QUARANTINE
    modes = [contract.for_table(table).unknown_fields for table in "abc"]
    assert modes == [UnknownFields.IGNORE, UnknownFields.KEEP, UnknownFields.KEEP]
    assert not contract.for_table("c").strict


def test_tables_with_equal_rules_share_them() -> None:
    assert STRICT.for_table("silver_chess") is STRICT.for_table("silver_go")
    assert STRICT.for_table("silver_chess") is not STRICT.for_table("silver_test_1")


def test_looking_up_rules_does_not_change_the_contract() -> None:
    fresh = Contract(columns=Mode.FREEZE, per_table={"silver_test_*": TableRules(types="freeze")})
    STRICT.for_table("silver_chess")
    assert fresh == STRICT
    copied = pickle.loads(pickle.dumps(STRICT))
    assert copied == STRICT
    assert copied.for_table("silver_chess") == STRICT.for_table("silver_chess")
