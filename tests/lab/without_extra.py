"""Run `headgate` where the packages of `headgate[lab]` are not installed."""

from __future__ import annotations

import subprocess
import sys

_CODE = """
import sys
for name in ("fastavro", "psutil", "pymysql", "pymysqlreplication"):
    sys.modules[name] = None
from headgate.cli.main import run_command
sys.exit(run_command(sys.argv[1:]))
"""


def headgate_without_extra(*words: str) -> subprocess.CompletedProcess[str]:
    """Run a command in the current folder."""
    command = [sys.executable, "-c", _CODE, *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)
