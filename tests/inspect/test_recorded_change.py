from __future__ import annotations

from headgate.inspect.ledger import open_ledger, recorded_changes
from headgate.lake.ledger_entries import SchemaEntry
from headgate.schema.changes import RetypeColumn
from tests.inspect.small_lake import SmallLake
from tests.lake.recorded import complete


def test_a_recorded_change_says_what_the_change_said(empty_lake: SmallLake) -> None:
    change = RetypeColumn("level", "string", "long", "level__long")
    _record(empty_lake, SchemaEntry.of("silver_chess", change, (7,)))
    (recorded,) = recorded_changes(open_ledger(empty_lake.pipeline))
    assert recorded.text == str(change)
    assert recorded.outcome == change.outcome
    assert recorded.schema_ids == (7,)


def test_a_change_that_a_newer_version_wrote_is_still_shown(empty_lake: SmallLake) -> None:
    _record(empty_lake, SchemaEntry("silver_chess", "SplitColumn", "level", "applied"))
    (recorded,) = recorded_changes(open_ledger(empty_lake.pipeline))
    assert recorded.text == "SplitColumn level"


def test_a_table_with_a_quote_in_its_name_has_no_changes(lake: SmallLake) -> None:
    assert recorded_changes(open_ledger(lake.pipeline), "' OR 1=1 --") == []


def _record(lake: SmallLake, entry: SchemaEntry) -> None:
    complete(lake.landing.ledger, 0, 0, [entry])
