"""Makes derived tables anew, from all that has landed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headgate.errors import LandingError
from headgate.land.event import Listener
from headgate.land.ledger import Ledger
from headgate.land.run_lock import run_lock
from headgate.pipeline import AnyPipeline
from headgate.pipeline.wording import did_you_mean, shown
from headgate.run.derive_tables import DerivedTables
from headgate.run.pipeline_session import pipeline_session


@dataclass(frozen=True)
class Refreshed:
    """A derived table that was made anew, or followed one that was."""

    table: str
    rows: int
    version: int | None
    error: str | None = None


def refresh(
    pipeline: AnyPipeline,
    patterns: Sequence[str] = ("*",),
    listener: Listener = lambda _: None,
    began: Callable[[list[str]], None] = lambda _: None,
) -> list[Refreshed]:
    """Each table is replaced in one commit; whoever reads it sees the old rows until then."""
    with run_lock(pipeline.checkpoint, pipeline.name):
        ledger = Ledger(pipeline.lake, pipeline.ledger, pipeline.name)
        derived = DerivedTables(pipeline_session(pipeline), pipeline, ledger, listener)
        tables = derived.tables(patterns)
        if not tables:
            raise _unknown(patterns, derived.tables())
        began(tables)
        return [
            Refreshed(
                entry.table or "",
                entry.rows or 0,
                entry.table_version,
                entry.detail["error"] if entry.detail else None,
            )
            for entry in derived.refresh(tables)
        ]


def _unknown(patterns: Sequence[str], known: Sequence[str]) -> LandingError:
    asked = ", ".join(map(shown, patterns))
    hint = "nothing has landed yet that a table could be derived from"
    if known:
        hint = did_you_mean(patterns[0], known) or "headgate tables lists what is there"
    return LandingError("table-unknown", f"no derived table is called {asked}", hint=hint)
