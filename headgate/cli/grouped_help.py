"""Commands in the order in which one meets them, under what they are for."""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup

_GROUPS = {
    "Start": ("init", "demo", "up", "down"),
    "Land": ("simulate", "run", "refresh"),
    "Look": ("status", "tables", "graph", "schema", "plan", "quarantine", "rewind", "verify"),
    "Share": ("export",),
    "Mend": ("check", "doctor", "jars"),
}


class HelpfulGroup(TyperGroup):
    """Shows its help when it is called with nothing."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args:
            print(ctx.get_help())
            ctx.exit()
        return super().parse_args(ctx, args)


class GroupedHelp(HelpfulGroup):
    """The help of `headgate` itself."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        width = max(len(name) for name in self.commands)
        for group, names in _GROUPS.items():
            with formatter.section(group):
                formatter.write_dl(
                    [
                        (name.ljust(width), self.commands[name].get_short_help_str(100))
                        for name in names
                    ]
                )
