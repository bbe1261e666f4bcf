"""A second Spark: the shell of `headgate spark`, in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Self

_MARK = "\x01rows "


class Shell:
    """Runs statements in the shell, one after the other."""

    def __init__(self, pipeline_file: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "headgate", "spark", str(pipeline_file)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def sql(self, statement: str) -> list[list[Any]]:
        """Return the rows of a statement."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        rows = f"[list(row) for row in spark.sql({statement!r}).collect()]"
        line = f"import json; print({_MARK!r} + json.dumps({rows}, default=str), flush=True)\n"
        self._process.stdin.write(line)
        self._process.stdin.flush()
        printed = []
        for line in self._process.stdout:
            if _MARK in line:
                found: list[list[Any]] = json.loads(line.partition(_MARK)[2])
                return found
            printed.append(line)
            assert "Exception" not in line, "".join(printed)
        raise AssertionError("".join(printed))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)
        assert self._process.stdout is not None
        self._process.stdout.close()
