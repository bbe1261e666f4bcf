"""Whoever shares a lake, in whatever order: every version has the rows of a plain model.

A seed chooses who takes part, what they do and when turns change. A failure prints all steps.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import settings

from tests.interleave.changes_world import ChangesWorld
from tests.interleave.pipelines_world import PipelinesWorld
from tests.interleave.tables_world import TablesWorld
from tests.interleave.world import ANY, World, failure_of, run_seed

AVOIDED: dict[str, tuple[str, ...]] = {
    "tables": (),
    "changes": (),
    "pipelines": (),
}
"""Hazards that the product does not withstand yet, by world."""

WORLDS: dict[type[World], int] = {TablesWorld: 52, ChangesWorld: 38, PipelinesWorld: 10}
"""The number of seeds of each world in `make test`."""
_FEW = 60
"""Seeds among which a hazard that is avoided must show."""


def seeds() -> Iterator[object]:
    for world, number in WORLDS.items():
        for seed in range(number):
            yield pytest.param(world, seed, id=f"{world.name}-{seed}")


@pytest.mark.parametrize(("world", "seed"), [*seeds()])
def test_all_versions_have_the_rows_of_the_model(world: type[World], seed: int) -> None:
    run_seed(world, seed, avoided=AVOIDED[world.name])


@pytest.mark.hypothesis
@pytest.mark.parametrize("world", WORLDS, ids=lambda world: world.name)
def test_new_seeds(world: type[World]) -> None:
    """In `make search`, many seeds that no run has tried."""
    if settings.get_current_profile_name() != "search":
        pytest.skip("the seeds of `make test` are above")
    for _ in range(30 * WORLDS[world]):
        run_seed(world, int.from_bytes(os.urandom(6)), avoided=AVOIDED[world.name])


@pytest.mark.parametrize("world", WORLDS, ids=lambda world: world.name)
def test_chosen_seed(world: type[World]) -> None:
    """Repeat a failure of a seed."""
    if "SEED" not in os.environ:
        pytest.skip("SEED is not set")
    focus = os.environ.get("FOCUS", ANY) or None
    run_seed(world, int(os.environ["SEED"]), focus, AVOIDED[world.name])


def known_faults() -> Iterator[object]:
    for world in WORLDS:
        for hazard in AVOIDED[world.name]:
            yield pytest.param(world, hazard, id=f"{world.name}: {hazard}")


@pytest.mark.soak
@pytest.mark.parametrize(("world", "hazard"), [*known_faults()])
def test_avoided_hazards_still_fail(world: type[World], hazard: str) -> None:
    """Once this fails, take the hazard from the list: its seeds run in `make test` from then on."""
    failures = (failure_of(world, seed, hazard) for seed in range(_FEW))
    found = next(filter(None, failures), None)
    assert found is not None
    print(found)


@pytest.mark.parametrize("world", WORLDS, ids=lambda world: world.name)
def test_a_seed_leads_to_the_same_steps_again(world: type[World]) -> None:
    first, second = (run_seed(world, 3, None) for _ in range(2))
    actors = [step.actor for step in first.scheduler.steps]
    assert actors == [step.actor for step in second.scheduler.steps]
    assert len(set(actors)) > 2
