"""Every command ends by naming the one that comes next."""

from __future__ import annotations

from collections.abc import Sequence

from headgate.cli.styled import styled


def print_next_steps(steps: Sequence[tuple[str, str]]) -> None:
    """Commands, each with what it does."""
    width = max(len(command) for command, _ in steps)
    print("\nNext:")
    for command, purpose in steps:
        print(f"  {styled(command.ljust(width), 'green')}  {purpose}")
