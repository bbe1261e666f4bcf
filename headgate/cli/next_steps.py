"""Every command ends by naming the one that comes next."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Sequence

from headgate.cli.styled import styled


def print_next_steps(steps: Sequence[tuple[str, str]]) -> None:
    """Commands, each with what it does, as they can be typed here."""
    me = command_here(sys.argv[0], shutil.which("headgate"))
    typed = [(re.sub("^headgate ", f"{me} ", command), purpose) for command, purpose in steps]
    width = max(len(command) for command, _ in typed)
    print("\nNext:")
    for command, purpose in typed:
        print(f"  {styled(command.ljust(width), 'green')}  {purpose}")


def command_here(called: str, on_path: str | None) -> str:
    """`headgate`, unless that is not on the PATH: then the way it was called."""
    if on_path is not None or os.path.basename(called) != "headgate":
        return "headgate"
    shorter = os.path.relpath(called)
    return called if shorter.startswith("..") else shorter
