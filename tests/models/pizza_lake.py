"""A lake of a few days of pizza orders, as they would have landed."""

from __future__ import annotations

from pathlib import Path

from deltalake import write_deltalake

from bench.wait_times import landed_tables
from headgate.examples import find_example
from headgate.lab.pizza.world import PizzaPlan

FEATURES = """
SELECT hour(moment) AS hour, count(*) AS orders,
  count_if(event_time > moment - INTERVAL 30 MINUTES) AS recent
FROM pizza_orders_avro
"""


def write_pizza(folder: Path, plan: PizzaPlan, features: str | None = FEATURES) -> Path:
    """Write the example's pipeline and its tables; return the pipeline file."""
    example = find_example("pizza-embedded")
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "pizza.yaml"
    file.write_text(example.text())
    for name in example.files:
        (folder / name).write_text(example.file(name))
    if features is not None:
        (folder / "features.sql").write_text(features)
    for table, rows in landed_tables(plan).items():
        write_deltalake(folder / "lake" / f"silver_{table}", rows)
    return file
