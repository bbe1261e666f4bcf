"""What the shop wrote, when it is over."""

from __future__ import annotations

from pathlib import Path

from headgate.cli.amounts import counted, lasted, number
from headgate.cli.next_steps import print_next_steps
from headgate.simulate.shop.simulate_shop import ShopPlan, SimulatedShop


def shop_summary(written: SimulatedShop, plan: ShopPlan, removed: list[str]) -> dict[str, object]:
    return {
        "changes": written.changes,
        "backfilled": written.backfilled,
        "files": written.files,
        "schema_changes": written.schema_changes,
        "kinds": dict(written.kinds.most_common()),
        "tables": dict(written.tables.most_common()),
        "seconds": round(written.seconds, 3),
        "rate": round(written.rate),
        "format": plan.format,
        "to": str(plan.landing),
        "removed": removed,
    }


def print_shop_summary(written: SimulatedShop, plan: ShopPlan) -> None:
    print(
        f"Wrote {counted(written.changes, 'change')} of {counted(len(written.tables), 'table')} "
        f"to {plan.landing} in {lasted(written.seconds)} ({number(written.rate)} changes/s)"
    )
    for kind, count in written.kinds.most_common():
        print(f"  {number(count):>8}  {kind}")
    if written.backfilled:
        print(f"{counted(written.backfilled, 'row')} from before came by backfill")
    print(
        f"{counted(written.files, 'file')}; "
        f"{counted(written.schema_changes, 'schema change')} on the way"
    )
    steps = [("headgate run shop.yaml --once", "land them")]
    if not Path("shop.yaml").exists():
        steps.insert(0, ("headgate init shop", "write a pipeline file"))
    print_next_steps(steps)
