"""`headgate plan`: what the newest schemas and declarations would do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Annotated

import typer

from headgate.amounts import counted, number, size
from headgate.cli.commands.schema import print_changes
from headgate.cli.output import (
    JsonOption,
    ShownError,
    print_json,
    print_next_steps,
    printable,
    show_errors,
    styled,
)
from headgate.cli.pipeline_argument import (
    OnlineOption,
    PipelineArgument,
    find_pipeline,
    quiet_spark,
)
from headgate.errors import UsageError
from headgate.schema.changes import Outcome, SchemaChange, WidenType

if TYPE_CHECKING:
    from headgate.catalog.grants import TableGrants
    from headgate.inspect.plan import PipelinePlan, TablePlan, UnusableSchema
    from headgate.inspect.plan_gold import DerivedPlan, DerivedTablePlan
    from headgate.registry.registry import SubjectVersion

_MAX_SCHEMAS = 10
_MAX_DERIVED = 3


def plan(
    pipeline: PipelineArgument = None,
    strict: Annotated[
        bool,
        typer.Option(
            "--strict",
            help="Exit with 1 if anything would be refused, quarantined, discarded or kept apart;"
            " for CI.",
        ),
    ] = False,
    online: OnlineOption = False,
    as_json: JsonOption = False,
) -> None:
    """Show what new schemas and declarations would do; write nothing.

    \b
    Examples:
      headgate plan games.yaml
      headgate plan games.yaml --strict

    Fits the newest schema of every subject in the registry into the tables, under the current
    contract. Marks: + added, ~ widened or cast, ! breaking or not applied.

    For each declaration of `gold`, shows how its tables are kept up to date, and which will be
    created or rebuilt because the declaration changed. Of `grants`, shows what the ledger knows;
    with --online, what differs in the catalog, which may start Spark.

    Next: headgate schema diff TABLE SUBJECT
    """
    from headgate.config import load_pipeline
    from headgate.inspect.plan import read_plan

    file = find_pipeline(pipeline)
    declared = load_pipeline(file)
    if declared.lands_changes and not (declared.gold or declared.grants):
        raise UsageError(
            "bad-argument",
            f"{file} declares change files: without a registry or `gold` there is nothing to plan",
            hint="headgate schema TABLE shows the schema changes so far",
        )
    with quiet_spark() if online else nullcontext():
        found = read_plan(declared, online)
    problems = _problems(found) if strict else []
    if as_json:
        print_json(found.as_record(), errors=problems)
    else:
        print_plan(found)
        print_next_steps(_next_steps(found, file))
        show_errors(problems, as_json=False)
    if problems:
        raise typer.Exit(1)


def _problems(plan: PipelinePlan) -> list[ShownError]:
    if plan.all_lands_as_it_is:
        return []
    hint = "fix the schema, or change `contract` in the pipeline file"
    return [ShownError("schema-withheld", ", ".join(_not_applied(plan)), hint)]


def _next_steps(plan: PipelinePlan, file: str) -> list[tuple[str, str]]:
    steps = [(f"headgate run {file} --once", "land what the source has")]
    changing = [one for one in plan.tables if one.exists and one.changes]
    if changing:
        names = f"{changing[0].table} {changing[0].schemas[-1].subject}"
        command = f"headgate schema diff {names} --pipeline {file}"
        steps.insert(0, (command, "show the changes of one table"))
    return steps


def print_plan(plan: PipelinePlan) -> None:
    print(f"{styled(plan.pipeline, 'bold')}: {_summary(plan)}")
    for table in plan.tables:
        if table.changes:
            _print_table(table)
    if plan.unusable:
        print(f"\n{styled('Unusable schemas', 'bold')}")
        for one in plan.unusable:
            _print_unusable(one)
    if plan.without_table:
        print(f"\n{styled('No table yet', 'bold')}, its name comes from the records")
        names = [printable(str(one)) for one in plan.without_table]
        print(f"  {_listed(names, _MAX_SCHEMAS)}")
    _print_derived(plan)
    _print_grants(plan)


def _summary(plan: PipelinePlan) -> str:
    """`12 tables: 3 would change, 1 column would be kept apart, 2 schemas would be refused`."""
    found = plan.summary
    derived = [
        f"{counted(amount, 'derived table')} {what}"
        for amount, what in (
            (found.derived_made, "will be created"),
            (found.derived_rebuilt, "will be rebuilt"),
        )
        if amount
    ]
    if not plan.tables and any(one.tables for one in plan.derived):
        return ", ".join(derived) or "no changes"
    parts = [
        *([f"{number(found.created)} would be created"] if found.created else []),
        *([f"{number(found.changed)} would change"] if found.changed else []),
        *_not_applied(plan),
        *([f"{counted(found.as_before, 'change')} blocked as before"] if found.as_before else []),
        *derived,
    ]
    return f"{counted(found.tables, 'table')}: {', '.join(parts) or 'no changes'}"


def _not_applied(plan: PipelinePlan) -> list[str]:
    """What would not land unchanged in its table."""
    found = plan.summary
    parts = [
        (found.kept_apart, f"{counted(found.kept_apart, 'column')} would be kept apart"),
        (found.discarded, f"{counted(found.discarded, 'field')} would be discarded"),
        (found.quarantined, f"{counted(found.quarantined, 'change')} would quarantine records"),
        (found.refused, f"{counted(found.refused, 'schema')} would be refused"),
    ]
    return [text for amount, text in parts if amount]


def _print_table(table: TablePlan) -> None:
    new = "" if table.exists else ", new"
    schemas = _listed([_name(one) for one in table.schemas], _MAX_SCHEMAS)
    print(f"\n{styled(printable(table.table), 'bold')}{new}, from {schemas}")
    print_changes([(one.change, _note(one.change, table)) for one in table.changes])


def _note(change: SchemaChange, table: TablePlan) -> str:
    if isinstance(change, WidenType) and change.outcome is Outcome.APPLIED:
        return f"rewrites {size(table.rewritten_bytes)}"
    return ""


def _print_unusable(one: UnusableSchema) -> None:
    mark = styled("!", "red")
    tables = f" of {', '.join(map(printable, one.tables))}" if one.tables else ""
    print(f"  {mark}  {_name(one.schema)}{tables}: quarantined, {one.reason}")
    for line in one.detail.splitlines():
        print(f"     {styled(printable(line), 'dim')}")


def _name(schema: SubjectVersion) -> str:
    return f"{printable(str(schema))} (schema {schema.schema_id})"


def _listed(names: Sequence[str], most: int) -> str:
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {number(more)} more" if more > 0 else "")


def _print_derived(plan: PipelinePlan) -> None:
    if not plan.derived:
        return
    print(f"\n{styled('Derived tables', 'bold')}")
    for one in plan.derived:
        tables = counted(len(one.tables), "table") if one.tables else "no table yet"
        print(f"  {styled(printable(one.name), 'bold')}: {tables}, {printable(one.how)}")
        for line in _derived_lines(one):
            print(f"    {line}")


def _derived_lines(plan: DerivedPlan) -> Iterator[str]:
    created, rebuilt, kept = (
        [one for one in plan.tables if one.step == step] for step in ("make", "rebuild", "follow")
    )
    if created:
        yield f"{styled('+', 'green')}  {_names(created)} will be created{_reads(created)}"
    if rebuilt:
        why = "will be rebuilt, because the declaration changed"
        yield f"{styled('~', 'yellow')}  {_names(rebuilt)} {why}{_reads(rebuilt)}"
    if kept:
        yield f"   {_names(kept)} {'stays' if len(kept) == 1 else 'stay'} up to date with new rows"
    for unknown in plan.unknown:
        meant = f"; did you mean `{printable(unknown.meant)}`?" if unknown.meant else ""
        column = printable(unknown.column)
        yield f"{styled('!', 'red')}  no table has a column `{column}`, so it is null{meant}"
    for missing in plan.missing:
        where = counted(len(missing.tables), "table")
        tables = _listed([printable(one) for one in missing.tables], _MAX_DERIVED)
        yield f"   `{printable(missing.column)}` is null in {where}: {tables}"


def _print_grants(plan: PipelinePlan) -> None:
    found = plan.grants
    if found is not None and found.drift is not None:
        _print_drift(found.drift)
        return
    if found is not None and found.not_compared is not None:
        print(f"\n{styled('Grants', 'bold')}, not compared: {printable(found.not_compared)}")
    if found is None or not (found.missing or found.obsolete):
        return
    print(f"\n{styled('Grants', 'bold')}, as far as the ledger knows")
    if found.missing:
        what = f"{counted(len(found.missing), 'table')} such as {found.missing[0]}"
        print(f"  {styled('+', 'green')}  {what}: the next run grants what is declared")
    if found.obsolete:
        what = f"{counted(len(found.obsolete), 'table')} such as {found.obsolete[0]}"
        print(f"  {styled('-', 'red')}  {what}: headgate grants apply revokes what is no longer")


def _print_drift(drift: Sequence[TableGrants]) -> None:
    if not drift:
        print(f"\n{styled('Grants', 'bold')} are as declared in the catalog")
        return
    print(f"\n{styled('Grants', 'bold')}, compared with the catalog")
    for one in drift[:_MAX_SCHEMAS]:
        print(f"  {printable(one.table)}: {printable(one.differences)}")
    if len(drift) > _MAX_SCHEMAS:
        print(f"  and {counted(len(drift) - _MAX_SCHEMAS, 'more table')}: headgate grants plan")


def _names(tables: Sequence[DerivedTablePlan]) -> str:
    if len(tables) > _MAX_DERIVED:
        return counted(len(tables), "table")
    return ", ".join(printable(one.table) for one in tables)


def _reads(tables: Sequence[DerivedTablePlan]) -> str:
    """The input to read; its size is unknown if the source tables do not exist yet."""
    read = sum(one.read_bytes for one in tables)
    sources = counted(sum(one.sources for one in tables), "table")
    return f": reads {sources}, {size(read)}" if read else f": reads {sources}"
