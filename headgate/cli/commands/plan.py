"""`headgate plan`: what the newest schemas would do, before a record has them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from headgate.cli.find_pipeline import PipelineArgument, find_pipeline
from headgate.cli.json_output import print_json
from headgate.cli.next_steps import print_next_steps
from headgate.cli.show_error import ShownError, show_errors
from headgate.cli.show_plan import print_plan, withheld
from headgate.errors import UsageError

if TYPE_CHECKING:
    from headgate.inspect import Plan


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
    from headgate.inspect import read_plan
    from headgate.pipeline import ChangePipeline, load_pipeline

    file = find_pipeline(pipeline)
    declared = load_pipeline(file)
    if isinstance(declared, ChangePipeline) and not declared.gold:
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
