"""`headgate doctor`: check everything that a run needs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headgate.amounts import counted
from headgate.cli.output import JsonOption, Style, print_json, printable, styled

if TYPE_CHECKING:
    from headgate.inspect.doctor import Check

_SYMBOLS = {"ok": "✓", "warn": "!", "fail": "✗"}
_STYLES: dict[str, Style] = {"ok": "green", "warn": "yellow", "fail": "red"}


def doctor(
    pipeline: Annotated[
        str | None,
        typer.Argument(
            metavar="PIPELINE", help="A pipeline file to check as well.", show_default=False
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Check everything that a run needs, from Java to the lake.

    \b
    Examples:
      headgate doctor                 this machine
      headgate doctor games.yaml      also source, registry, lake, checkpoint and secrets

    Runs every check and ends with the fixes. Exits with 1 if a check failed.

    Next: headgate run PIPELINE
    """
    from headgate.inspect.doctor import check_all

    checks = check_all(pipeline, Path(".headgate"))
    failed = [check for check in checks if check.state == "fail"]
    if as_json:
        print_json(checks, errors=failed)
    else:
        _print_checks(checks)
    if failed:
        raise typer.Exit(1)


def _print_checks(checks: Sequence[Check]) -> None:
    width = max(len(check.name) for check in checks)
    for check in checks:
        state = str(check.state)
        mark = styled(f"{_SYMBOLS[state]} {state.ljust(4)}", _STYLES[state])
        print(f"{mark}  {printable(check.name).ljust(width)}  {printable(check.detail)}".rstrip())
    fixes = [check for check in checks if check.fix]
    if fixes:
        print("\nFixes:")
        for check in fixes:
            print(f"  {check.name}: {check.fix}")
    failed = sum(check.state == "fail" for check in checks)
    warned = sum(check.state == "warn" for check in checks)
    problems = [f"{counted(failed, 'check')} failed"] if failed else []
    problems += [counted(warned, "warning")] if warned else []
    print(f"\n{', '.join(problems)}" if problems else "\nAll checks passed")
