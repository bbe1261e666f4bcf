"""A group of commands that is a command itself: what is no name of one is for its first."""

from __future__ import annotations

from typing import Any

from headgate.cli.grouped_help import HelpfulGroup


class DefaultCommandGroup(HelpfulGroup):
    """`headgate schema chess` is short for `headgate schema show chess`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in (*self.commands, *ctx.help_option_names):
            args = [next(iter(self.commands)), *args]
        return super().parse_args(ctx, args)
