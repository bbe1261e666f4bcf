"""Land a shop and two more waves of games in one session, on a cluster or on this machine.

A process of its own, because Spark's settings are those of a process.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from headgate import errors
from headgate.config import PipelineConfig, load_pipeline
from headgate.engine.runner import RunOptions
from headgate.engine.session import pipeline_session
from headgate.lake.storage import list_files, write_file
from headgate.run import run_pipeline

_ONCE = RunOptions(once=True)
_SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "50ms",
    "spark.speculation.quantile": "0.1",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.minTaskRuntime": "500ms",
}


def upload(folder: Path, url: str) -> None:
    """Copy new files, those of a table's log last."""
    there = {*list_files(url)}
    names = sorted(list_files(str(folder)), key=lambda name: ("_delta_log" in name, name))
    for name in names:
        if name not in there:
            write_file(f"{url}/{name}", (folder / name).read_bytes())


def _where(_: int) -> Iterator[dict[str, object]]:
    """Return what an executor is, and where its packages come from."""
    import headgate

    yield {
        "headgate": headgate.__file__,
        "folder": os.getcwd(),
        "user": os.getuid(),
        "home": os.environ["HOME"],
        "path": os.environ["PYTHONPATH"],
    }


def on_cluster(folder: Path, games: PipelineConfig, shop: PipelineConfig) -> None:
    context = pipeline_session(games).sparkContext
    found = context.parallelize(range(2), 2).flatMap(_where).collect()
    print(json.dumps({"executors": found}))
    try:
        private = str(folder / "private")
        places = {"lake": private, "checkpoint": f"{private}/_checkpoints/games"}
        run_pipeline(games.model_copy(update=places), _ONCE)
    except errors.SetupError as error:
        print(json.dumps({"refused": [error.code, error.where, error.message]}))
    run_pipeline(shop, _ONCE)
    for wave in (1, 2):
        upload(folder / f"wave-{wave}", games.source.path)  # type: ignore[union-attr]
        run_pipeline(games, _ONCE)


def with_master(pipeline: PipelineConfig, master: str, lake: str | None) -> PipelineConfig:
    spark = {**pipeline.spark, "spark.master": master, **_SPECULATION}
    if lake is None:
        return pipeline.model_copy(update={"spark": spark})
    places = {"lake": lake, "checkpoint": f"{lake}/_checkpoints/{pipeline.name}"}
    return pipeline.model_copy(
        update={"spark": {**pipeline.spark, "spark.master": master}, **places}
    )


def main(folder: Path, master: str) -> None:
    local = str(folder / "lake") if master.startswith("local") else None
    games, shop = (
        with_master(load_pipeline(folder / f"{name}.yaml"), master, local and f"{local}/{name}")
        for name in ("games", "shop")
    )
    if local is None:
        on_cluster(folder, games, shop)
    else:
        run_pipeline(games, _ONCE)
        run_pipeline(shop, _ONCE)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
