"""What the ledger says of registrations, and how `headgate status` shows it."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate.catalog.recorded import Recorded
from headgate.config import Catalog, PipelineConfig
from headgate.lake import ledger
from headgate.lake.ledger import Ledger
from headgate.lake.ledger_entries import CatalogEntry, TableEntry
from tests.cli.conftest import Headgate
from tests.cli.conftest import headgate as headgate
from tests.inspect.small_lake import SmallLake

METASTORE = "thrift://127.0.0.1:1"
GAMES, OTHER = Catalog(name="games", in_=METASTORE), Catalog(name="other", in_=METASTORE)


@pytest.fixture
def lake(tmp_path: Path) -> SmallLake:
    lake = SmallLake(tmp_path)
    lake.register(3, versions=[1])
    lake.land(50, bad_share=0.1)
    lake.file.write_text(f"{lake.file.read_text()}catalog: {{name: games, in: '{METASTORE}'}}\n")
    return lake


def record(pipeline: PipelineConfig, *entries: CatalogEntry) -> None:
    Ledger(pipeline.lake, pipeline.ledger, pipeline.name).add(0, entries)


def test_last_outcome_counts_and_only_that_of_the_declared_catalog(lake: SmallLake) -> None:
    pipeline = lake.pipeline
    assert Recorded.of(pipeline, GAMES).registered == frozenset()
    record(pipeline, CatalogEntry("silver_chess", GAMES.identity))
    record(pipeline, CatalogEntry("silver_go", GAMES.identity, "refused"))
    record(pipeline, CatalogEntry("ledger", GAMES.identity, "refused"))
    record(pipeline, CatalogEntry("ledger", GAMES.identity))
    found = Recorded.of(pipeline, GAMES)
    assert found.registered == {"silver_chess", "ledger"}
    assert found.errors == {"silver_go": "refused"}
    assert found.missing == ["bronze_games", "quarantine", "silver_checkers", "silver_go"]
    assert Recorded.of(pipeline, OTHER).registered == frozenset()


def test_registrations_are_kept_in_totals(lake: SmallLake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "_TOTALS_EVERY", 2)
    pipeline = lake.pipeline
    record(pipeline, CatalogEntry("silver_chess", GAMES.identity))
    record(pipeline, CatalogEntry("silver_go", GAMES.identity, "refused"))
    before = Recorded.of(pipeline, GAMES)
    written = Ledger(pipeline.lake, pipeline.ledger, pipeline.name)
    for batch in (1, 2, 3):
        written.complete(batch, batch, [TableEntry("silver_go", 1, batch)], batch - 1)
    assert written.snapshot().totals_at == 2
    assert Recorded.of(pipeline, GAMES) == before


def test_status_and_doctor_show_what_is_missing_and_why(
    headgate: Headgate, lake: SmallLake
) -> None:
    record(
        lake.pipeline,
        CatalogEntry("silver_chess", GAMES.identity),
        CatalogEntry("silver_go", GAMES.identity, "is registered already"),
    )
    printed = headgate("status", lake.file).out
    assert f"1 table in {METASTORE}/games" in printed
    assert "silver_go: is registered already" in printed
    assert "4 tables such as bronze_games; the next run registers them" in printed
    doctor = headgate("doctor", lake.file).out
    assert f"the metastore at {METASTORE} does not answer" in doctor
    assert "headgate up --catalog" in doctor
