"""How `--help` is laid out: commands by purpose, options by panel."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand, TyperGroup

_GROUPS = {
    "Get started": ("init", "demo", "up", "down", "simulate"),
    "Run": ("check", "doctor", "plan", "run", "submit"),
    "Inspect": ("status", "tables", "query", "spark", "serve", "schema", "graph"),
    "Predict": ("model",),
    "Deploy": ("workflow", "grants"),
    "Maintain": ("maintain", "quarantine", "pending", "refresh", "verify", "rewind", "remove"),
    "Other": ("export", "jars"),
}


class GroupedOptions(TyperCommand):
    """A command whose help shows options under the panels that they declare."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        panels: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is None:
                continue
            if param.param_type_name == "argument":
                name, text = record
                panels["Arguments"].append((name.partition(" <")[0], text))  # without its type
            else:
                panel = getattr(param, "rich_help_panel", None) or "Options"
                panels.setdefault(panel, []).append(record)
        for title, records in panels.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


class HelpfulGroup(TyperGroup):
    """A group that shows its help when called without arguments."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args:
            print(ctx.get_help())
            ctx.exit()
        return super().parse_args(ctx, args)


class CommandsByPurpose(HelpfulGroup):
    """`headgate` itself, whose help lists commands by purpose."""

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


class DefaultCommandGroup(HelpfulGroup):
    """A group with a default command: `schema chess` is short for `schema show chess`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in (*self.commands, *ctx.help_option_names):
            args = [next(iter(self.commands)), *args]
        return super().parse_args(ctx, args)
