from __future__ import annotations

from headgate.config import GoldUnion
from headgate.gold.declared import union_select
from headgate.sql.gold_select import OutputColumn


def test_union_is_parsed_into_its_parts() -> None:
    union = GoldUnion(from_="gold_*", select="route, upper(a.b) AS b", where="n > 1 AND ok")
    select = union_select(union)
    assert select.outputs == (OutputColumn("route", "`route`"), OutputColumn("b", "UPPER(`a`.`b`)"))
    assert select.columns == {"route", "a", "n", "ok"}
    assert select.has_route
    assert select.sql("all gold") == (
        "SELECT `route`, UPPER(`a`.`b`) AS `b`\nFROM `all gold`\nWHERE `n` > 1 AND `ok`"
    )


def test_union_without_where_and_route() -> None:
    select = union_select(GoldUnion(from_="silver", select="x"))
    assert (select.where, select.has_route) == (None, False)
    assert select.sql("v") == "SELECT `x`\nFROM `v`"
    assert select.sql("v", extra="_table") == "SELECT `_table`, `x`\nFROM `v`"
