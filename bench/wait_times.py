"""How well waiting times are predicted: simulated pizza stores in a week that no model has seen."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import ceil
from pathlib import Path
from time import perf_counter

import numpy as np
import pyarrow as pa
from deltalake import write_deltalake
from rich.table import Table

from headgate.config import PipelineConfig, load_pipeline
from headgate.examples import find_example
from headgate.lab.pizza.records import CANCELLED, COMPLETED, ORDERS, WAIT_TIMES, stale_waits
from headgate.lab.pizza.world import BrokenOven, Cancelled, Completed, Ordered, PizzaPlan, world
from headgate.lake.duck import Sql
from headgate.models.examples import Examples, feature_query, read_examples, split_by_days
from headgate.models.features import AT
from headgate.models.registry import ModelRegistry
from headgate.models.train import FALLBACK, NEW, RECENT, train

SEEDS = (101, 102, 103)
WEEKS = 4
"""Weeks to learn from; the week after them is predicted."""

_NAME = "wait_times"
_TIME = pa.timestamp("us", "UTC")
_WEEK = timedelta(days=7)
_MINUTE = timedelta(minutes=1)


@dataclass(frozen=True)
class Waits:
    """Mean absolute errors in minutes, on the unseen week of one seed."""

    seed: int
    orders: int
    mean_wait: float
    model: float
    stale: float
    recent: float
    """Of the mean of the last 20 waits."""
    queue: float
    """Of open orders divided by the throughput of half an hour."""
    coverage: float
    seconds: float
    """To read labels, evaluate features, train and compare."""


@dataclass(frozen=True)
class Day:
    """Orders of a store on a day on which an oven breaks: hours, and minutes of waiting."""

    hours: Sequence[float]
    true: Sequence[float]
    predicted: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]
    stale: float
    broken: tuple[float, float]


def measure_waits(
    folder: Path, seeds: Sequence[int], weeks: int, say: Callable[[str], None]
) -> Iterator[tuple[Waits, Day]]:
    """Train on some weeks of each seed's stores, and predict the next."""
    os.environ.pop("MLFLOW_TRACKING_URI", None)
    for seed in seeds:
        say(f"Seed {seed}: {weeks + 1} weeks of 10 stores")
        plan = PizzaPlan(seed=seed, days=7 * (weeks + 1))
        pipeline = _pipeline(folder / str(seed), plan)
        began = perf_counter()
        trained = train(pipeline, _NAME, promote=True)
        seconds = perf_counter() - began
        later = split_by_days(read_examples(pipeline, _NAME), 7).later
        assert trained.evaluation.moments == len(later), "the last fifth is the last week"
        maes = {score.name: score.mae for score in trained.evaluation.scores}
        mine = trained.evaluation.score(NEW)
        assert mine is not None
        assert mine.coverage is not None
        found = Waits(
            seed,
            len(later),
            float(later.labels.mean()),
            mine.mae,
            maes[FALLBACK],
            maes[RECENT],
            float(np.abs(_queue(later) - later.labels).mean()),
            mine.coverage,
            seconds,
        )
        yield found, _broken_day(pipeline, plan)


def _pipeline(folder: Path, plan: PizzaPlan) -> PipelineConfig:
    """Write what would have landed, and return the example's pipeline over it."""
    example = find_example("pizza-embedded")
    folder.mkdir(parents=True)
    (folder / "pizza.yaml").write_text(example.text())
    for name in example.files:
        (folder / name).write_text(example.file(name))
    pipeline = load_pipeline(folder / "pizza.yaml")
    for table, rows in landed_tables(plan).items():
        write_deltalake(f"{pipeline.lake}/silver_{table}", rows)
    return pipeline


def landed_tables(plan: PizzaPlan) -> dict[str, pa.Table]:
    """Return the tables of a world, with the columns that features and labels use."""
    events = list(world(plan))
    waits = stale_waits(plan.stores, plan.start)
    tables = {
        WAIT_TIMES: pa.table(
            {
                "_timestamp": pa.array([plan.start] * len(waits), _TIME),
                "store_id": pa.array([each.store for each in waits], pa.int32()),
                "wait_time": pa.array([each.minutes for each in waits], pa.int32()),
                "event_time": pa.array([each.at for each in waits], _TIME),
            }
        )
    }
    for table, kind in ((ORDERS, Ordered), (COMPLETED, Completed), (CANCELLED, Cancelled)):
        mine = [event for event in events if isinstance(event, kind)]
        columns = {
            "_timestamp": pa.array([event.at for event in mine], _TIME),
            "store_id": pa.array([event.store for event in mine], pa.int32()),
            "store_order_id": pa.array([event.number for event in mine], pa.int32()),
            "event_time": pa.array([event.at for event in mine], _TIME),
        }
        if kind is Ordered:
            columns["order_lines"] = pa.array(
                [
                    [{"category": line.category, "quantity": line.quantity} for line in event.lines]
                    for event in mine
                    if isinstance(event, Ordered)
                ],
                pa.list_(pa.struct([("category", pa.string()), ("quantity", pa.int32())])),
            )
        tables[table] = pa.table(columns)
    return tables


def _queue(later: Examples) -> np.ndarray:
    """Return open orders divided by throughput; without any, the mean of the last waits."""
    frame = later.frame
    rate = frame["completed_30"].to_numpy(dtype="float64") / 30
    known = frame["mean_wait_20"].fillna(later.labels.mean()).to_numpy(dtype="float64")
    divided = np.divide(
        frame["open_orders"].to_numpy(dtype="float64"), rate, out=known.copy(), where=rate > 0
    )
    return np.asarray(np.where(frame["open_orders"] > 0, divided, known))


def _broken_day(pipeline: PipelineConfig, trained: PizzaPlan) -> Day:
    """Predict the waits of a Saturday on which the largest oven of a store breaks at five."""
    store = 3
    friday = trained.start + timedelta(days=4)
    saturday = friday + timedelta(days=1)
    broken = BrokenOven(store, saturday + timedelta(hours=17), timedelta(hours=3))
    # The same stores with other orders: another start.
    start = friday + (WEEKS + 1) * _WEEK
    shift = start - friday
    plan = PizzaPlan(
        seed=trained.seed,
        start=start,
        days=2,
        broken_ovens=(BrokenOven(store, broken.start + shift, broken.lasts),),
        days_between_breakdowns=None,
    )
    tables = landed_tables(plan)
    query, sql = feature_query(pipeline, _NAME), Sql()
    for table in query.tables:
        sql.register(table, tables[table])
    waits = _true_waits(tables, store, saturday + shift)
    moments = pa.table(
        {
            "store_id": pa.array([store] * len(waits), pa.int32()),
            AT: pa.array([at - timedelta(milliseconds=1) for at in waits], _TIME),
        }
    )
    frame = query.evaluate(sql, moments).drop_columns([AT]).to_pandas()
    model = ModelRegistry.of(pipeline).load_model(pipeline.model_uri(_NAME))
    predicted = model.predict(frame)
    return Day(
        [(at - (saturday + shift)) / timedelta(hours=1) for at in waits],
        list(waits.values()),
        predicted["prediction"].tolist(),
        predicted["low"].tolist(),
        predicted["high"].tolist(),
        stale_waits(plan.stores, start)[store - 1].minutes,
        (17.0, 20.0),
    )


def _true_waits(tables: Mapping[str, pa.Table], store: int, day: datetime) -> dict[datetime, float]:
    def times(table: str) -> dict[int, datetime]:
        rows = tables[table].select(["store_id", "store_order_id", "event_time"]).to_pylist()
        return {
            row["store_order_id"]: row["event_time"] for row in rows if row["store_id"] == store
        }

    completed = times(COMPLETED)
    return {
        at: (completed[number] - at) / _MINUTE
        for number, at in times(ORDERS).items()
        if number in completed and day + timedelta(hours=10) <= at < day + timedelta(hours=23)
    }


def waits_table(found: Sequence[Waits]) -> Table:
    table = Table(title=f"Waiting times: {WEEKS} weeks to learn from, mean error of the next week")
    for heading in (
        "seed",
        "orders",
        "mean wait",
        "model",
        "stale",
        "model / stale",
        "mean of last 20",
        "queue / throughput",
        "in range",
        "training",
    ):
        table.add_column(heading, justify="right")
    for one in found:
        table.add_row(
            str(one.seed),
            f"{one.orders:,}",
            f"{one.mean_wait:.1f} min",
            f"{one.model:.2f} min",
            f"{one.stale:.2f} min",
            f"{one.model / one.stale:.0%}",
            f"{one.recent:.2f} min",
            f"{one.queue:.2f} min",
            f"{one.coverage:.0%}",
            f"{one.seconds:.0f} s",
        )
    return table


_WIDTH, _HEIGHT, _LEFT, _TOP, _BOTTOM = 760, 300, 44, 34, 40


def day_plot(day: Day) -> str:
    """Return a drawing of a day: the stale wait, the predicted one and its range, the true one."""
    first, last = 10.0, 23.0
    most = 10.0 * ceil(max([*day.true, *day.high]) / 10)

    def x(hour: float) -> float:
        return _LEFT + (hour - first) / (last - first) * (_WIDTH - _LEFT - 10)

    def y(minutes: float) -> float:
        return _TOP + (1 - minutes / most) * (_HEIGHT - _TOP - _BOTTOM)

    def line(values: Sequence[float]) -> str:
        return " ".join(f"{x(h):.1f},{y(v):.1f}" for h, v in zip(day.hours, values, strict=True))

    above = line(day.high)
    below = " ".join(reversed(line(day.low).split()))
    begin, end = day.broken
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#fff"/>',
        f'<rect x="{x(begin):.1f}" y="{_TOP}" width="{x(end) - x(begin):.1f}" '
        f'height="{_HEIGHT - _TOP - _BOTTOM}" fill="#f3f3f3"/>',
        f'<text x="{x(begin) + 4:.1f}" y="{_TOP + 14}" fill="#666">an oven is broken</text>',
        *(
            f'<text x="{x(hour):.1f}" y="{_HEIGHT - 20}" text-anchor="middle" fill="#666">'
            f"{hour}:00</text>"
            for hour in range(10, 24, 2)
        ),
        *(
            f'<path d="M{_LEFT} {y(minutes):.1f}H{_WIDTH - 10}" stroke="#ddd"/>'
            f'<text x="{_LEFT - 6}" y="{y(minutes) + 4:.1f}" text-anchor="end" fill="#666">'
            f"{minutes}</text>"
            for minutes in range(0, int(most) + 1, 20)
        ),
        f'<polygon points="{above} {below}" fill="#1f77b4" fill-opacity="0.15"/>',
        *(
            f'<circle cx="{x(h):.1f}" cy="{y(v):.1f}" r="1.8" fill="#444"/>'
            for h, v in zip(day.hours, day.true, strict=True)
        ),
        f'<polyline points="{line(day.predicted)}" fill="none" stroke="#1f77b4" '
        'stroke-width="1.6"/>',
        f'<path d="M{_LEFT} {y(day.stale):.1f}H{_WIDTH - 10}" stroke="#d62728" '
        'stroke-width="1.6" stroke-dasharray="6 4"/>',
        f'<text x="{_LEFT}" y="20" fill="#222">minutes of waiting: <tspan fill="#444">● true'
        '</tspan>  <tspan fill="#1f77b4">— predicted, with its range</tspan>  '
        '<tspan fill="#d62728">- - stale estimate</tspan></text>',
        "</svg>",
    ]
    return "\n".join(parts) + "\n"
