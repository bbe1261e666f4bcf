"""`headgate grants`: privileges on the tables of a pipeline, in its catalog."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from headgate.amounts import counted
from headgate.cli.help import GroupedOptions
from headgate.cli.output import (
    JsonOption,
    ShownError,
    Style,
    print_json,
    print_next_steps,
    printable,
    require_prompt,
    show_errors,
    styled,
)
from headgate.cli.pipeline_argument import PipelineArgument, find_pipeline, quiet_spark

if TYPE_CHECKING:
    from headgate.catalog.grants import GrantsChanged, GrantsPlan
    from headgate.config import Granted

app = typer.Typer(
    rich_markup_mode=None,
    help="Compare, apply or revoke grants on tables in the catalog.",
)

_MAX_TABLES = 20


@app.command(cls=GroupedOptions)
def plan(
    pipeline: PipelineArgument = None,
    strict: Annotated[
        bool,
        typer.Option("--strict", help="Exit with 1 if there is any difference; for CI."),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Compare what is granted in the catalog with what is declared.

    \b
    Examples:
      headgate grants plan games.yaml
      headgate grants plan games.yaml --strict

    Marks: + declared but not granted, - granted by Headgate but no longer declared, ~ granted by
    others. Asks the catalog about every registered table, and changes nothing. Exits with 1 if the
    catalog refuses to list the grants on a table.

    Next: headgate grants apply PIPELINE
    """
    from headgate.config import load_pipeline

    file = find_pipeline(pipeline)
    declared = load_pipeline(file)
    with quiet_spark():
        from headgate.catalog.grants import plan_grants

        found = plan_grants(declared)
    problems = _problems(found, strict)
    if as_json:
        print_json(found, errors=problems)
    else:
        _print_plan(found)
        if any(one.missing or one.obsolete for one in found.tables):
            print_next_steps([(f"headgate grants apply {file}", "grant + and revoke -")])
        elif any(one.foreign for one in found.tables):
            print_next_steps([(f"headgate grants apply {file} --exact", "revoke ~, too")])
        show_errors(problems, as_json=False)
    if problems:
        raise typer.Exit(1)


@app.command(cls=GroupedOptions)
def apply(
    pipeline: PipelineArgument = None,
    exact: Annotated[
        bool, typer.Option("--exact", help="Also revoke what others have granted.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Grant what is declared, and revoke what no longer is.

    \b
    Examples:
      headgate grants apply games.yaml
      headgate grants apply games.yaml --exact

    Revokes only what Headgate has granted; what others have granted stays, unless --exact. The
    pipeline may be running. Exits with 1 if the catalog refuses something.

    Next: headgate grants plan PIPELINE
    """
    from headgate.config import load_pipeline

    file = find_pipeline(pipeline)
    declared = load_pipeline(file)
    with quiet_spark():
        from headgate.catalog.grants import apply_grants

        done = apply_grants(declared, exact, (lambda _: None) if as_json else _print_changed)
    _finish(done, as_json, (f"headgate grants plan {file}", "compare with the catalog"))


@app.command(cls=GroupedOptions)
def revoke(
    pipeline: PipelineArgument = None,
    principal: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="PRINCIPAL",
            help="Only what this principal has, such as `analysts` or `group:analysts`.",
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Revoke what Headgate has granted.

    \b
    Examples:
      headgate grants revoke games.yaml
      headgate grants revoke games.yaml --from analysts --yes

    Lists everything first and asks once. What others have granted stays. The next run and
    headgate grants apply grant again what the pipeline file still declares.

    Next: headgate grants plan PIPELINE
    """
    from headgate.config import load_pipeline

    if not yes:
        require_prompt("revoke", as_json)
    file = find_pipeline(pipeline)
    declared = load_pipeline(file)
    with quiet_spark():
        from headgate.catalog.grants import granted_by_headgate, revoke_grants

        chosen = granted_by_headgate(declared, principal)
        if not as_json:
            _print_chosen(chosen, principal)
        if not chosen or not (yes or typer.confirm("Revoke all of this?")):
            if as_json:
                print_json({"tables": []})
            elif chosen:
                print("Nothing was revoked")
            return
        done = revoke_grants(declared, principal, (lambda _: None) if as_json else _print_changed)
    _finish(done, as_json, (f"headgate grants plan {file}", "compare with the catalog"))


def _problems(found: GrantsPlan, strict: bool) -> list[ShownError]:
    problems = [
        ShownError("grant-refused", f"{one.table}: {one.error}")
        for one in found.tables
        if one.error is not None
    ]
    if strict and not problems and not found.is_as_declared:
        hint = "headgate grants apply, or change `grants` in the pipeline file"
        problems.append(ShownError("grants-differ", _differences(found), hint))
    return problems


def _differences(found: GrantsPlan) -> str:
    """`2 to grant, 1 to revoke, 1 granted by others`."""
    counts = (
        (sum(len(one.missing) for one in found.tables), "to grant"),
        (sum(len(one.obsolete) for one in found.tables), "to revoke"),
        (sum(len(one.foreign) for one in found.tables), "granted by others"),
    )
    return ", ".join(f"{count} {what}" for count, what in counts if count)


def _print_plan(found: GrantsPlan) -> None:
    tables = f"{counted(len(found.tables), 'table')} in {found.catalog}"
    if not found.tables:
        print(f"{styled(found.pipeline, 'bold')}: no table is registered in {found.catalog} yet")
        return
    what = _differences(found) or "all grants are as declared"
    print(f"{styled(found.pipeline, 'bold')}: {tables}: {what}")
    for one in found.tables:
        if one.missing or one.obsolete or one.foreign:
            print(f"\n{styled(printable(one.table), 'bold')}")
            _print_marked("+", "green", "", one.missing)
            _print_marked("-", "red", ", no longer declared", one.obsolete)
            _print_marked("~", "yellow", ", granted by others", one.foreign)


def _print_marked(mark: str, style: Style, note: str, grants: Sequence[Granted]) -> None:
    for one in grants:
        print(f"  {styled(mark, style)}  {printable(str(one))}{note}")


def _print_changed(one: GrantsChanged) -> None:
    print(styled(printable(one.table), "bold"), flush=True)
    _print_marked("+", "green", "", one.granted)
    for revoked in one.revoked:
        who = f"{revoked.privilege} from {revoked.principal}"
        print(f"  {styled('-', 'red')}  {printable(who)}")
    if one.error is not None:
        print(f"  {styled('!', 'red')}  {printable(one.error)}")


def _print_chosen(chosen: Mapping[str, Sequence[Granted]], principal: str | None) -> None:
    if not chosen:
        who = f" to {printable(principal)}" if principal else ""
        print(f"Headgate has granted nothing{who}")
        return
    total = sum(map(len, chosen.values()))
    print(f"{counted(total, 'privilege')} on {counted(len(chosen), 'table')}:")
    for table, grants in [*chosen.items()][:_MAX_TABLES]:
        print(f"  {table}: {printable(', '.join(map(str, grants)))}")
    if len(chosen) > _MAX_TABLES:
        print(f"  and {counted(len(chosen) - _MAX_TABLES, 'more table')}")


def _finish(done: Sequence[GrantsChanged], as_json: bool, next_step: tuple[str, str]) -> None:
    failed = [one for one in done if one.error is not None]
    if as_json:
        errors = [ShownError("grant-refused", f"{one.table}: {one.error}") for one in failed]
        print_json({"tables": done}, errors=errors)
    else:
        granted = sum(len(one.granted) for one in done)
        revoked = sum(len(one.revoked) for one in done)
        if not done:
            print("Nothing to do")
        else:
            changes = [(granted, "granted"), (revoked, "revoked")]
            parts = [f"{counted(count, 'privilege')} {what}" for count, what in changes if count]
            if failed:
                parts.append(f"refused on {counted(len(failed), 'table')}")
            print(", ".join(parts))
        print_next_steps([next_step])
    if failed:
        raise typer.Exit(1)
