"""What would become of derived tables, as a person reads it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from headgate.cli.amounts import counted, number, size
from headgate.cli.styled import printable, styled

if TYPE_CHECKING:
    from headgate.inspect import Plan
    from headgate.inspect.planned_gold import DerivedPlan, DerivedTablePlan

_MOST_NAMES = 3


def print_derived(plan: Plan) -> None:
    if not plan.derived:
        return
    print(f"\n{styled('Derived tables', 'bold')}")
    for one in plan.derived:
        made = counted(len(one.tables), "table") if one.tables else "no table yet"
        print(f"  {styled(printable(one.name), 'bold')}: {made}, {printable(one.how)}")
        for line in _lines(one):
            print(f"    {line}")


def derived_in_short(plan: Plan) -> list[str]:
    """`3 derived tables will be made`."""
    found = plan.summary
    told = [
        (found.derived_made, "will be made"),
        (found.derived_rebuilt, "will be rebuilt"),
    ]
    return [f"{counted(amount, 'derived table')} {what}" for amount, what in told if amount]


def _lines(plan: DerivedPlan) -> Iterator[str]:
    made, rebuilt, kept = (
        [one for one in plan.tables if one.step == step] for step in ("make", "rebuild", "follow")
    )
    if made:
        yield f"{styled('+', 'green')}  {_named(made)} will be made{_reads(made)}"
    if rebuilt:
        why = "will be rebuilt, because the declaration has changed"
        yield f"{styled('~', 'yellow')}  {_named(rebuilt)} {why}{_reads(rebuilt)}"
    if kept:
        follow = "follows" if len(kept) == 1 else "follow"
        yield f"   {_named(kept)} {follow} what is new"
    for unknown in plan.unknown:
        meant = f"; did you mean `{printable(unknown.meant)}`?" if unknown.meant else ""
        column = printable(unknown.column)
        yield f"{styled('!', 'red')}  no table has a column `{column}`, it is null{meant}"
    for missing in plan.missing:
        where = counted(len(missing.tables), "table")
        yield f"   `{printable(missing.column)}` is null in {where}: {_listed(missing.tables)}"


def _named(tables: Sequence[DerivedTablePlan]) -> str:
    if len(tables) > _MOST_NAMES:
        return counted(len(tables), "table")
    return _listed([one.table for one in tables])


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _MOST_NAMES
    shown = ", ".join(map(printable, names[:_MOST_NAMES]))
    return shown + (f" and {number(more)} more" if more > 0 else "")


def _reads(tables: Sequence[DerivedTablePlan]) -> str:
    """What it takes; nothing is known of tables that are not there themselves."""
    read = sum(one.read_bytes for one in tables)
    sources = counted(sum(one.sources for one in tables), "table")
    return f": reads {sources}, {size(read)}" if read else f": reads {sources}"
