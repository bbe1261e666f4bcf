"""A small lake whose quarantine has something to replay and something that never lands."""

from __future__ import annotations

from pathlib import Path

from tests.inspect.small_lake import SmallLake

UNKNOWN, RUBBISH = 40, 10


def make_quarantined_lake(folder: Path) -> SmallLake:
    """Two games have landed; then comes a version whose schemas only the sender has."""
    lake = SmallLake(folder)
    lake.register(2, versions=[1])
    lake.land(20, bad_share=0)
    lake.versions.clear()
    hidden = lake.folder / "not_registered"
    lake.register(2, versions=[2])
    (lake.folder / "schemas").rename(hidden)
    lake.land(UNKNOWN, bad_share=0)
    hidden.rename(lake.folder / "schemas")
    lake.land_values([b"\xff"] * RUBBISH)
    return lake
