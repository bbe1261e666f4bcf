"""A plan as a person reads it: a line of numbers, then what would change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headgate.cli.amounts import counted, number, size
from headgate.cli.show_changes import print_changes
from headgate.cli.show_plan_of_gold import derived_in_short, print_derived
from headgate.cli.styled import printable, styled
from headgate.schema.change import Outcome, SchemaChange, WidenType

if TYPE_CHECKING:
    from headgate.inspect import Plan, TablePlan, UnusableSchema
    from headgate.schema.registry import SubjectVersion

_MOST_NAMES = 10


def print_plan(plan: Plan) -> None:
    print(f"{styled(plan.pipeline, 'bold')}: {in_one_line(plan)}")
    for table in plan.tables:
        if table.changes:
            _print_table(table)
    if plan.unusable:
        print(f"\n{styled('Schemas that cannot be used', 'bold')}")
        for one in plan.unusable:
            _print_unusable(one)
    if plan.without_table:
        print(f"\n{styled('No table yet', 'bold')}, its name is in the records")
        print(f"  {_listed([printable(str(one)) for one in plan.without_table])}")
    print_derived(plan)


def in_one_line(plan: Plan) -> str:
    """`12 tables: 3 would change, 1 column would be kept apart, 2 schemas would be refused`."""
    found = plan.summary
    derived = derived_in_short(plan)
    if not plan.tables and any(one.tables for one in plan.derived):
        return ", ".join(derived) or "nothing would change"
    told = [
        *([f"{number(found.created)} would be created"] if found.created else []),
        *([f"{number(found.changed)} would change"] if found.changed else []),
        *withheld(plan),
        *([f"{counted(found.as_before, 'change')} withheld as before"] if found.as_before else []),
        *derived,
    ]
    return f"{counted(found.tables, 'table')}: {', '.join(told) or 'nothing would change'}"


def withheld(plan: Plan) -> list[str]:
    """What would not land as it is."""
    found = plan.summary
    told = [
        (found.kept_apart, f"{counted(found.kept_apart, 'column')} would be kept apart"),
        (found.discarded, f"{counted(found.discarded, 'field')} would be discarded"),
        (found.quarantined, f"{counted(found.quarantined, 'change')} would quarantine records"),
        (found.refused, f"{counted(found.refused, 'schema')} would be refused"),
    ]
    return [text for amount, text in told if amount]


def _print_table(table: TablePlan) -> None:
    new = "" if table.exists else ", not there yet"
    schemas = _listed([_name(one) for one in table.schemas])
    print(f"\n{styled(printable(table.table), 'bold')}{new}, from {schemas}")
    print_changes([(one.change, _note(one.change, table)) for one in table.changes])


def _note(change: SchemaChange, table: TablePlan) -> str:
    if isinstance(change, WidenType) and change.outcome is Outcome.APPLIED:
        return f"rewrites {size(table.rewritten_bytes)}"
    return ""


def _print_unusable(one: UnusableSchema) -> None:
    mark = styled("!", "red")
    of = f" of {', '.join(map(printable, one.tables))}" if one.tables else ""
    print(f"  {mark}  {_name(one.schema)}{of}: quarantined, {one.reason}")
    for line in one.detail.splitlines():
        print(f"     {styled(printable(line), 'dim')}")


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _MOST_NAMES
    return ", ".join(names[:_MOST_NAMES]) + (f" and {number(more)} more" if more > 0 else "")


def _name(schema: SubjectVersion) -> str:
    return f"{printable(str(schema))} (schema {schema.schema_id})"
