"""Errors as a person or a program reads them: what, where, and what to do."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headgate.cli.output import printable, styled
from headgate.errors import HeadgateError

if TYPE_CHECKING:
    from headgate.config import Finding


@dataclass(frozen=True)
class ShownError:
    """The parts of an error that are shown."""

    code: str
    message: str
    hint: str | None = None
    where: str | None = None


def shown_errors(error: HeadgateError) -> list[ShownError]:
    """An error of a pipeline file may have several findings; each is shown."""
    findings = getattr(error, "findings", ())
    if findings:
        return [ShownError(each.code, each.message, each.hint, each.where) for each in findings]
    return [ShownError(error.code, error.message, error.hint, error.where)]


def show_errors(errors: Sequence[ShownError], as_json: bool) -> None:
    if as_json:
        listed = [
            {"code": each.code, "message": each.message, "hint": each.hint, "where": each.where}
            for each in errors
        ]
        print(json.dumps({"ok": False, "errors": listed}, ensure_ascii=False))
        return
    for each in errors:
        _tell(f"{styled('error:', 'red', sys.stderr)} {each.message} [{each.code}]")
        if each.where:
            _tell(f"  at {each.where}")
        if each.hint:
            _tell(f"{styled('hint:', 'cyan', sys.stderr)} {each.hint}")


def _tell(line: str) -> None:
    print(line, file=sys.stderr)


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
