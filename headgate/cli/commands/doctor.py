"""`headgate doctor`: is everything there that a run needs?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headgate.cli.output import Style, counted, print_json, printable, styled

if TYPE_CHECKING:
    from headgate.inspect.doctor import Check

_SYMBOLS = {"ok": "✓", "warn": "!", "fail": "✗"}
_STYLES: dict[str, Style] = {"ok": "green", "warn": "yellow", "fail": "red"}


def doctor(
    pipeline: Annotated[
        str | None,
        typer.Argument(metavar="PIPELINE", help="A pipeline to check too.", show_default=False),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check that all is there that a run needs.

    \b
      headgate doctor                 this machine
      headgate doctor games.yaml      source, registry, lake, checkpoint and secrets too

    Every check is made; the fixes stand at the end. Exits with 1 if a check failed.

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
    told = [f"{counted(failed, 'check')} failed"] if failed else []
    told += [counted(warned, "warning")] if warned else []
    print(f"\n{', '.join(told)}" if told else "\nAll is well")
