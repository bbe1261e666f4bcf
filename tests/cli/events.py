"""A run as a list of events, for views to show."""

from __future__ import annotations

from headgate.engine.events import (
    BatchLanded,
    BatchSkipped,
    Ended,
    Event,
    Idle,
    SchemaChanged,
    Started,
    TableWaits,
)
from headgate.schema.changes import AddColumn, CreateTable


def landed(batch: int, rows: int, bad: int = 0, *, new: int = 0, changes: int = 0) -> BatchLanded:
    return BatchLanded(
        batch=batch,
        rows=rows,
        quarantined={"null_value": bad} if bad else {},
        tables=5,
        new_tables=new,
        changes=changes,
        bytes=1000,
        seconds=2.0,
        staging_seconds=1.5,
        commit_seconds=0.4,
    )


_GAMES = ("checkers", "chess", "go", "shogi", "tetris")
A_RUN: list[Event] = [
    Started("games", "/lake", resumed_at=None),
    Idle(),
    Idle(),
    *(
        SchemaChanged(0, table, CreateTable(table, 12), (1,))
        for table in ("bronze_games", "quarantine", *(f"silver_{game}" for game in _GAMES))
    ),
    landed(0, 9_900, bad=100, new=5),
    Idle(),
    SchemaChanged(1, "silver_chess", AddColumn("col_chess_game_5", "string"), (1, 2)),
    SchemaChanged(1, "silver_pong", CreateTable("silver_pong", 12), (3,)),
    TableWaits(1, "silver_go", 40, "OSError: no room"),
    landed(1, 5_000, changes=1, new=1),
    BatchSkipped(1),
    landed(2, 5_000),
    Idle(),
    Ended(batches=3, rows=19_900, quarantined=100, stopped=True),
]
