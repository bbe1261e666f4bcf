"""`headgate check`: what is wrong in a pipeline file, without running it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from headgate.cli.errors import excerpt
from headgate.cli.output import counted, print_json, styled
from headgate.cli.pipeline_argument import find_pipeline

if TYPE_CHECKING:
    from headgate.config import Finding


def check(
    pipelines: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PIPELINE...",
            help="Pipeline files; may be left out where a folder has only one.",
            show_default=False,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Find what is wrong in pipeline files, without running them.

    \b
      headgate check games.yaml
      headgate check *.yaml --json

    Asks neither Spark nor any server; exits with 1 if something was found.

    Next: headgate doctor PIPELINE asks the servers too
    """
    from headgate.inspect.check import find_mistakes

    files = pipelines or [find_pipeline(None)]
    found = {file: find_mistakes(file) for file in files}
    findings = [finding for each in found.values() for finding in each]
    if as_json:
        print_json({"files": files}, errors=findings)
    else:
        _print_findings(found)
    if findings:
        raise typer.Exit(1)


def _print_findings(found: Mapping[str, Sequence[Finding]]) -> None:
    for file, findings in found.items():
        for finding in findings:
            print(f"{styled(str(finding.where), 'bold')}: {finding.message} [{finding.code}]")
            for line in excerpt(finding, findings):
                print(line)
            if finding.hint:
                print(f"{styled('hint:', 'cyan')} {finding.hint}")
            print()
        if not findings:
            print(f"{file}: {styled('ok', 'green')}")
    total = sum(map(len, found.values()))
    if total:
        bad = sum(bool(findings) for findings in found.values())
        print(styled(f"{counted(total, 'mistake')} in {counted(bad, 'file')}", "red"))
