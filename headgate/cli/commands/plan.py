"""`headgate plan`: what the newest schemas would do, before a record has them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from headgate.cli.errors import ShownError, show_errors
from headgate.cli.output import (
    counted,
    number,
    print_json,
    print_next_steps,
    printable,
    size,
    styled,
)
from headgate.cli.pipeline_argument import PipelineArgument, find_pipeline
from headgate.cli.schema_changes import print_changes
from headgate.errors import UsageError
from headgate.schema.changes import Outcome, SchemaChange, WidenType

if TYPE_CHECKING:
    from headgate.inspect import Plan, TablePlan, UnusableSchema
    from headgate.inspect.planned import DerivedPlan, DerivedTablePlan
    from headgate.registry.registry import SubjectVersion

_MOST_DERIVED_NAMES = 3


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
    if len(tables) > _MOST_DERIVED_NAMES:
        return counted(len(tables), "table")
    return _listed_derived([one.table for one in tables])


def _listed_derived(names: Sequence[str]) -> str:
    more = len(names) - _MOST_DERIVED_NAMES
    shown = ", ".join(map(printable, names[:_MOST_DERIVED_NAMES]))
    return shown + (f" and {number(more)} more" if more > 0 else "")


def _reads(tables: Sequence[DerivedTablePlan]) -> str:
    """What it takes; nothing is known of tables that are not there themselves."""
    read = sum(one.read_bytes for one in tables)
    sources = counted(sum(one.sources for one in tables), "table")
    return f": reads {sources}, {size(read)}" if read else f": reads {sources}"


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


def plan(
    pipeline: PipelineArgument = None,
    strict: Annotated[
        bool,
        typer.Option(
            "--strict",
            help="End with exit code 1 if anything would be refused, quarantined, discarded or "
            "kept apart: for CI.",
        ),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show what new schemas and declarations would do; write nothing.

    \b
      headgate plan games.yaml
      headgate plan games.yaml --strict

    Asks the registry for the newest schema of every subject, and fits it into the tables as
    they are, by the contract as it is now. Marks: + is added, ~ is widened or cast, ! breaks
    something or is kept out.

    Of each declaration of `gold` it tells how its tables are kept up to date, which will be made,
    and which will be rebuilt because the declaration has changed.

    Next: headgate schema diff TABLE SUBJECT
    """
    from headgate.config import load_pipeline
    from headgate.inspect import read_plan

    file = find_pipeline(pipeline)
    declared = load_pipeline(file)
    if declared.lands_changes and not declared.gold:
        raise UsageError(
            "bad-argument",
            f"{file} declares change files: there is no registry whose schemas could be planned",
            hint="headgate schema TABLE shows what tables went through",
        )
    found = read_plan(declared)
    troubles = _troubles(found) if strict else []
    if as_json:
        print_json(found.as_record(), errors=troubles)
    else:
        print_plan(found)
        print_next_steps(_next_steps(found, file))
        show_errors(troubles, as_json=False)
    if troubles:
        raise typer.Exit(1)


def _troubles(plan: Plan) -> list[ShownError]:
    if plan.all_lands_as_it_is:
        return []
    hint = "mend the schema, or change `contract` in the pipeline file"
    return [ShownError("schema-withheld", ", ".join(withheld(plan)), hint)]


def _next_steps(plan: Plan, file: str) -> list[tuple[str, str]]:
    steps = [(f"headgate run {file} --once", "land what the source has")]
    changing = [one for one in plan.tables if one.exists and one.changes]
    if changing:
        names = f"{changing[0].table} {changing[0].schemas[-1].subject}"
        command = f"headgate schema diff {names} --pipeline {file}"
        steps.insert(0, (command, "look at one of them alone"))
    return steps
