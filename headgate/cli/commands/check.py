"""`headgate check`: validate pipeline files without running them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from headgate.amounts import counted
from headgate.cli.output import JsonOption, print_json, printable, styled
from headgate.cli.pipeline_argument import find_pipeline

if TYPE_CHECKING:
    from headgate.config import Finding

_MAX_LINE = 100
_LOGIN_IN_URL = re.compile(r"//[^/\s@]*@")


def check(
    pipelines: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PIPELINE",
            help="Pipeline files; optional if the folder has only one.",
            show_default=False,
        ),
    ] = None,
    online: Annotated[
        bool,
        typer.Option(
            "--online",
            help="Also test the object storage: write, list and delete a file, conditional put.",
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Validate pipeline files without running them.

    \b
    Examples:
      headgate check games.yaml
      headgate check *.yaml --json

    Reports every problem with its line and a hint. Starts no Spark, and contacts no server
    without --online; exits with 1 if it finds a problem.

    Next: headgate doctor PIPELINE also contacts the servers
    """
    from headgate.inspect.check import find_mistakes

    files = pipelines or [find_pipeline(None)]
    found = {file: find_mistakes(file, online) for file in files}
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
            for line in _excerpt(finding, findings):
                print(line)
            if finding.hint:
                print(f"{styled('hint:', 'cyan')} {finding.hint}")
            print()
        if not findings:
            print(f"{file}: {styled('ok', 'green')}")
    total = sum(map(len, found.values()))
    if total:
        invalid = sum(bool(findings) for findings in found.values())
        print(styled(f"{counted(total, 'problem')} in {counted(invalid, 'file')}", "red"))


def _excerpt(finding: Finding, all_findings: Sequence[Finding]) -> list[str]:
    """Return the line of a finding with a caret under its column; empty if it has no line."""
    if finding.file is None or finding.line is None:
        return []
    line = _line(finding.file, finding.line)
    if line is None:
        return []
    has_secret = any(
        each.code == "secret-in-file" and (each.file, each.line) == (finding.file, finding.line)
        for each in all_findings
    )
    shown = _masked(line, has_secret)[:_MAX_LINE]
    number = str(finding.line)
    margin = " " * len(number)
    lines = [f"  {styled(f'{number} |', 'dim')} {shown}"]
    if finding.column is not None and finding.column <= len(shown) + 1:
        caret = " " * (finding.column - 1) + styled("^", "red")
        lines.append(f"  {styled(f'{margin} |', 'dim')} {caret}")
    return lines


def _line(file: str, number: int) -> str | None:
    try:
        with open(file, encoding="utf-8-sig", errors="replace") as opened:
            lines = opened.read().splitlines()
    except OSError:
        return None
    return printable(lines[number - 1].rstrip()) if number <= len(lines) else None


def _masked(line: str, has_secret: bool) -> str:
    """Hide secrets: what a terminal shows often ends up in a log."""
    if has_secret:
        key, colon, _ = line.partition(":")
        return f"{key}{colon} ***" if colon else "***"
    from headgate.config.secret_patterns import SECRET_NAMES

    is_reference = r"\s*[\"']?(?:env|file|databricks):"
    literal = rf"((?:{SECRET_NAMES})[\w.-]*\s*[:=]\s*)(?!{is_reference})[^\s,}}][^,}}]*"
    return _LOGIN_IN_URL.sub("//***@", re.sub(literal, r"\1***", line, flags=re.IGNORECASE))
