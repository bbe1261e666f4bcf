from __future__ import annotations

import io
import json

import pytest
from rich.console import Console

from headgate.cli.progress.lines import JsonLines, Lines, event_name, print_summary
from headgate.cli.progress.live import LiveView, NoView, choose_view
from headgate.cli.progress.tally import Tally
from headgate.engine.events import Event, FilesSkipped, GoldFailed, Idle, Started
from headgate.errors import UsageError
from tests.cli.events import A_RUN, landed
from tests.cli.snapshot import Snapshot


@pytest.fixture
def tally() -> Tally:
    return Tally("games", "/lake", own_tables=frozenset({"bronze_games", "quarantine"}))


def test_tally_counts_a_run(tally: Tally) -> None:
    for event in A_RUN:
        tally.take(event)
    assert (tally.rows, tally.quarantined.total(), tally.records) == (19_900, 100, 20_000)
    assert (len(tally.tables), tally.new_tables, tally.changes) == (6, 6, 1)
    assert tally.waiting == {}
    assert tally.fastest == landed(0, 9_900, bad=100, new=5)
    assert tally.landing_seconds == pytest.approx(3 * 1.9)
    assert tally.state == "stopped"


def test_tally_has_pending_tables_until_they_land(tally: Tally) -> None:
    for event in A_RUN[: A_RUN.index(landed(1, 5_000, changes=1, new=1)) + 1]:
        tally.take(event)
    assert list(tally.waiting) == ["silver_go"]


def test_tally_distinguishes_idle_from_landing(tally: Tally) -> None:
    assert tally.state == "starting Spark"
    tally.take(Started("games", "/lake", None))
    assert tally.state == "landing"
    tally.take(Idle())
    assert tally.state == "idle: caught up with the source"


def test_every_kind_of_event_has_a_text() -> None:
    kinds = Event.__subclasses__()
    assert len(kinds) >= 14
    silent = [kind.__name__ for kind in kinds if not {"text", "notice"} & vars(kind).keys()]
    assert silent == []


def test_a_notice_needs_no_case_in_the_tally(tally: Tally) -> None:
    tally.take(GoldFailed("gold_chess", "OSError: no space"))
    assert tally.recent[-1].subject == "gold_chess"
    assert tally.recent[-1].message == "derivation failed, will be retried: OSError: no space"


def test_lines_print_each_thing_once(
    tally: Tally, snapshot: Snapshot, capsys: pytest.CaptureFixture[str]
) -> None:
    with Lines(tally) as view:
        view.note("source", "a new game appears")
        for event in A_RUN:
            view(event)
    snapshot.check(capsys.readouterr().out)


def test_json_lines_have_every_event(tally: Tally, capsys: pytest.CaptureFixture[str]) -> None:
    with JsonLines(tally) as view:
        for event in A_RUN:
            view(event)
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    once = [event for event in A_RUN if event != Idle()]
    assert [line["event"] for line in lines if line["event"] != "idle"] == [
        event_name(event) for event in once
    ]
    assert sum(line["event"] == "idle" for line in lines) == 3
    changed = next(line for line in lines if line.get("table") == "silver_chess")
    assert changed["change"]["change"] == "CreateTable"


def test_live_view_of_a_run(tally: Tally, snapshot: Snapshot) -> None:
    view = LiveView(tally)
    for event in A_RUN:
        view(event)
    tally.began -= 3600
    snapshot.check(_drawn(view))


def test_live_view_before_the_first_batch(tally: Tally) -> None:
    assert "Spark takes a few seconds to start" in _drawn(LiveView(tally))


def test_summary_of_a_run(
    tally: Tally, snapshot: Snapshot, capsys: pytest.CaptureFixture[str]
) -> None:
    for event in A_RUN:
        tally.take(event)
    tally.began -= 3600
    print_summary("Done", tally)
    snapshot.check(capsys.readouterr().out)


def test_a_view_is_chosen_by_where_it_goes(tally: Tally) -> None:
    assert isinstance(choose_view("auto", tally), Lines)
    assert isinstance(choose_view("live", tally), LiveView)
    assert isinstance(choose_view("none", tally), NoView)
    assert isinstance(choose_view("auto", tally, as_json=True), JsonLines)
    with pytest.raises(UsageError):
        choose_view("alive", tally)


def _drawn(view: LiveView) -> str:
    text = io.StringIO()
    Console(file=text, width=90, no_color=True, highlight=False).print(view)
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines()) + "\n"


def test_skipped_files_are_counted_and_shown(
    tally: Tally, capsys: pytest.CaptureFixture[str]
) -> None:
    skipped = FilesSkipped({"/landing/a": "it is a link", "/landing/b": "Permission denied"})
    with Lines(tally) as view:
        view(skipped)
        view(landed(0, 10))
    assert "not read: /landing/a: it is a link, and 1 more" in capsys.readouterr().out
    assert tally.skipped == 2
    drawn = _drawn(LiveView(tally))
    assert "files not read" in drawn
    assert "/landing/a: it is a link, and 1 more" in drawn
    print_summary("Done", tally)
    assert "files not read" in capsys.readouterr().out
