"""`headgate demo`: see Headgate work, without any server."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headgate.amounts import counted, duration, number
from headgate.cli.output import print_next_steps
from headgate.errors import UsageError, did_you_mean, shown
from headgate.examples import find_example

if TYPE_CHECKING:
    from headgate.lab.demo import DemoResult
    from headgate.lab.pizza.demo import DemoPlan


_FOLDERS = {"games": Path(".demo"), "pizza": Path(".demo-pizza")}
_Progress = Annotated[
    str, typer.Option(metavar="auto|live|lines|none", help="How to show progress.")
]


def demo(
    example: Annotated[str, typer.Argument(metavar="games|pizza", help="What to show.")] = "games",
    folder: Annotated[
        Path | None,
        typer.Option(help="Where to put the tables.", show_default=".demo or .demo-pizza"),
    ] = None,
    records: Annotated[
        int, typer.Option(min=10, help="games: number of records to land.")
    ] = 500_000,
    keep: Annotated[
        bool, typer.Option("--keep", help="games: continue with the tables of the last demo.")
    ] = False,
    days: Annotated[int, typer.Option(min=3, help="pizza: days to learn from.")] = 14,
    seconds: Annotated[float, typer.Option(min=1, help="pizza: length of the live part.")] = 90,
    speed: Annotated[
        float, typer.Option(min=1, help="pizza: seconds of the chain in a second.")
    ] = 60,
    kafka: Annotated[
        bool, typer.Option("--kafka", help="pizza: use the services of headgate up.")
    ] = False,
    progress: _Progress = "auto",
) -> None:
    """See Headgate work; needs no server.

    \b
      headgate demo          many games whose schemas change
      headgate demo pizza    live wait times of a pizza chain, predicted by a model

    games: lands records of fifty games in three batches: one that creates the tables, a large one
    that shows the throughput, and one in which two games get a new column and a new game appears.
    In the first and the last, 1 % of the records are bad and go to quarantine.

    pizza: lands two weeks of orders, trains a model on them, and predicts the wait of each store
    while orders go on and an oven breaks down.

    Next: headgate tables .demo/games.yaml
    """
    if example not in _FOLDERS:
        hint = did_you_mean(example, list(_FOLDERS)) or f"use {' or '.join(_FOLDERS)}"
        raise UsageError("bad-argument", f"unknown demo {shown(example)}", hint=hint)
    folder = folder or _FOLDERS[example]
    if example == "pizza":
        from headgate.lab.pizza.demo import DemoPlan

        _pizza(folder, DemoPlan(days, speed, seconds), kafka, progress)
    else:
        _games(folder, records, keep, progress)


def _games(folder: Path, records: int, keep: bool, progress: str) -> None:
    from headgate.cli.pipeline_argument import quiet_spark
    from headgate.cli.progress.lines import print_summary
    from headgate.cli.progress.live import choose_view
    from headgate.cli.progress.tally import Tally
    from headgate.config import load_pipeline
    from headgate.inspect.tables import landed_tables
    from headgate.jars.jars import fetch_jars
    from headgate.lab.demo import Demo, DemoSize, prepare_folder, with_fast_start

    fetch_jars(["spark"], print)
    text = with_fast_start(find_example("games-embedded").text())
    earlier = prepare_folder(folder, {"games.yaml": text}, keep)
    file = folder / "games.yaml"
    pipeline = load_pipeline(file)
    tally = Tally.of(pipeline, landed_tables(pipeline))
    with quiet_spark(), choose_view(progress, tally) as view:
        size = DemoSize.of(records)
        games = Demo(folder, earlier, listener=view, note=view.note, size=size)
        result = games.run(pipeline)
    print_summary(_headline(result), tally, _latency(result))
    print_next_steps(
        [
            (f"headgate tables {file}", "list the tables"),
            (f"headgate schema {file} {games.changed_table}", "show a table's schema changes"),
            (f"headgate quarantine list {file}", "show records that could not land, and why"),
        ]
    )


def _pizza(folder: Path, plan: DemoPlan, kafka: bool, progress: str) -> None:
    from headgate.cli.pipeline_argument import quiet_spark
    from headgate.cli.progress.waits import choose_waits_view
    from headgate.cli.simulation import Target
    from headgate.config import load_pipeline
    from headgate.jars.jars import fetch_jars
    from headgate.lab.demo import prepare_folder
    from headgate.lab.pizza.demo import PREDICTION, PizzaDemo
    from headgate.lab.pizza.records import TOPICS
    from headgate.models.registry import require_models

    require_models()
    view = choose_waits_view(progress, plan.speed)
    fetch_jars(["spark"], print)
    if kafka:
        target = Target.kafka(None, None, *TOPICS)
        assert target.servers is not None
        example = find_example("pizza")
        text = example.text(target.servers, target.registry)
    else:
        target = Target.delta(folder / "inbox", str(folder / "schemas"), *TOPICS)
        example = find_example("pizza-embedded")
        text = example.text()
    file = folder / "pizza.yaml"
    prepare_folder(
        folder, {file.name: text, **{name: example.file(name) for name in example.files}}
    )
    with quiet_spark():
        pizza = PizzaDemo(load_pipeline(file), target.open_topics(), plan, show=view)
        print(f"Writing {counted(plan.days, 'day')} of orders")
        records = pizza.write_past()
        print(f"Landing {counted(records, 'record')}")
        pizza.land_past()
        print("Training a model on them")
        trained = pizza.train()
        print(f"{trained.version.name} version {trained.version.version}: {trained.reason}")
        print(f"Predicting while orders go on, {plan.speed:.0f} times as fast as in real life")
        with view:
            pizza.serve()
    if (errors := pizza.waits.mean_errors) is not None:
        stale, live = errors
        print(f"Mean error of the wait: stale {stale:.1f} min, live {live:.1f} min")
    print_next_steps(
        [
            (f"headgate query {file} 'SELECT * FROM {PREDICTION} EMIT CHANGES'", "see predictions"),
            (f"headgate model evaluate {file}", "compare the model with simpler estimates"),
            (f"headgate model explain {file}", "see which features matter"),
        ]
    )


def _headline(result: DemoResult) -> str:
    if not result.complete:
        return "Stopped before the end"
    return f"All {number(result.sent)} records are in exactly one place"


def _latency(result: DemoResult) -> list[tuple[str, str]]:
    if result.latency is None:
        return []
    landed, derived = duration(result.latency.landed), duration(result.latency.derived)
    records = counted(result.latency.records, "record")
    visible = f"{landed} from produced to visible in silver tables, {derived} in derived tables"
    return [("latency", visible), ("", f"in the last batch, of {records}, with schema changes")]
