from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, cast

import headgate
from headgate.engine.events import BatchLanded
from headgate.engine.runner import Runner
from headgate.lake.run_lock import Held, Holder
from headgate.run_result import RunTally
from headgate.sources.stop_signal import StopSignal
from headgate.testing import InProcessLake


def landed(batch: int) -> BatchLanded:
    return BatchLanded(
        batch=batch,
        rows=10,
        quarantined={"null_value": 2},
        tables=1,
        new_tables=0,
        changes=0,
        bytes=100,
        seconds=1.0,
        staging_seconds=0.5,
        commit_seconds=0.25,
        lag=None,
    )


def size_of(holder: object) -> int:
    """Number of bytes in the attributes of an object, and in what they hold."""
    seen: dict[int, object] = {}
    rest: list[object] = [vars(holder)]
    while rest:
        one = rest.pop()
        if id(one) in seen or isinstance(one, type):
            continue
        seen[id(one)] = one
        if isinstance(one, dict):
            rest += [*one.keys(), *one.values()]
        elif isinstance(one, list | tuple | set):
            rest += one
        elif hasattr(one, "__dict__") and type(one).__module__.startswith("headgate"):
            rest.append(vars(one))
    return sum(map(sys.getsizeof, seen.values()))


def pipeline(folder: Path) -> headgate.Pipeline:
    return headgate.Pipeline(
        name="games",
        source=headgate.Delta(path=str(folder / "inbox")),
        registry=str(folder / "schemas"),
        envelope=headgate.Wrapper(
            message="wrapper", route="game_name", schema_id="schema_id", payload="payload"
        ),
        lake=str(folder / "lake"),
    )


def test_a_run_of_many_batches_keeps_totals_only(tmp_path: Path) -> None:
    lake = InProcessLake(pipeline(tmp_path), tmp_path)
    nothing = cast(Any, None)
    runner = Runner(lake.pipeline, nothing, nothing, nothing, nothing, lambda _: None, StopSignal())
    tally = RunTally(lake.pipeline, None)
    for number in range(100):
        runner._emit(landed(number))
        tally.take(landed(number))
    sizes = size_of(runner), size_of(tally)
    for number in range(100, 10_000):
        runner._emit(landed(number))
        tally.take(landed(number))
    assert size_of(runner) < sizes[0] + 1000
    assert size_of(tally) < sizes[1] + 1000
    runner._run = lambda lock: {"silver_chess"}  # type: ignore[method-assign]
    ended = runner.run(Held(Holder.this_process(), after_failure=False))
    assert (ended.batches, ended.rows, ended.quarantined) == (10_000, 100_000, 20_000)
    result = tally.result(ended)
    assert result.quarantined == {"null_value": 20_000}
    assert result.landing_seconds == 10_000 * landed(0).landing_seconds
