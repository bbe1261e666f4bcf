"""Errors as a person or a program reads them: what, where, and what to do."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from headgate.cli.styled import styled
from headgate.errors import HeadgateError


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
