"""The line of the pipeline file that a finding is about, without the secrets it may hold."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from headgate.cli.styled import printable, styled

if TYPE_CHECKING:
    from headgate.pipeline import Finding

_LONGEST = 100
_SECRET = re.compile(
    r"((?:password|secret|token|jaas|credential|user\.?info)[\w.]*\s*[:=]\s*)"
    r"(?!\s*[\"']?(?:env|file):)[^\s,}][^,}]*",
    re.IGNORECASE,
)
_IN_ADDRESS = re.compile(r"//[^/\s@]*@")


def excerpt(finding: Finding, all_findings: Sequence[Finding]) -> list[str]:
    """The line and a mark below the column; nothing where there is no line."""
    if finding.file is None or finding.line is None:
        return []
    line = _line(finding.file, finding.line)
    if line is None:
        return []
    has_secret = any(
        each.code == "secret-in-file" and (each.file, each.line) == (finding.file, finding.line)
        for each in all_findings
    )
    shown = _masked(line, has_secret)[:_LONGEST]
    number = str(finding.line)
    space = " " * len(number)
    lines = [f"  {styled(f'{number} |', 'dim')} {shown}"]
    if finding.column is not None and finding.column <= len(shown) + 1:
        mark = " " * (finding.column - 1) + styled("^", "red")
        lines.append(f"  {styled(f'{space} |', 'dim')} {mark}")
    return lines


def _line(file: str, number: int) -> str | None:
    try:
        with open(file, encoding="utf-8-sig", errors="replace") as opened:
            lines = opened.read().splitlines()
    except OSError:
        return None
    return printable(lines[number - 1].rstrip()) if number <= len(lines) else None


def _masked(line: str, has_secret: bool) -> str:
    """What goes to a terminal goes to a log: a secret must not."""
    if has_secret:
        key, colon, _ = line.partition(":")
        return f"{key}{colon} ***" if colon else "***"
    return _IN_ADDRESS.sub("//***@", _SECRET.sub(r"\1***", line))
