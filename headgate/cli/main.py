"""The command `headgate`."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from headgate import __version__
from headgate.cli.commands import (
    check,
    demo,
    doctor,
    export,
    graph,
    init,
    jars,
    plan,
    quarantine,
    refresh,
    rewind,
    run,
    schema,
    services,
    simulate,
    status,
    tables,
    verify,
)
from headgate.cli.errors import ShownError, show_errors, shown_errors
from headgate.errors import HeadgateError

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


class DefaultCommandGroup(HelpfulGroup):
    """`headgate schema chess` is short for `headgate schema show chess`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in (*self.commands, *ctx.help_option_names):
            args = [next(iter(self.commands)), *args]
        return super().parse_args(ctx, args)


_SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100}

app = typer.Typer(
    cls=GroupedHelp,
    rich_markup_mode=None,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings=_SETTINGS,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"headgate {__version__}")
        raise typer.Exit


@app.callback()
def headgate(
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error as well.")
    ] = False,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Show the version and end."
        ),
    ] = False,
) -> None:
    """Lands streams whose schemas keep changing in Delta Lake, one table per kind of
    record, without a restart.

    Try it without any server: headgate demo
    """


for command in (
    init.init,
    demo.demo,
    services.up,
    services.down,
    run.run,
    status.status,
    tables.tables,
    plan.plan,
    graph.graph,
    refresh.refresh,
    rewind.rewind,
    verify.verify,
    check.check,
    doctor.doctor,
    jars.jars,
):
    app.command()(command)
app.add_typer(simulate.app, name="simulate", cls=HelpfulGroup, context_settings=_SETTINGS)
app.add_typer(schema.app, name="schema", cls=DefaultCommandGroup, context_settings=_SETTINGS)
app.add_typer(quarantine.app, name="quarantine", cls=HelpfulGroup, context_settings=_SETTINGS)
app.add_typer(export.app, name="export", cls=HelpfulGroup, context_settings=_SETTINGS)


def main() -> NoReturn:
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    sys.exit(run_command(sys.argv[1:]))


def run_command(arguments: Sequence[str]) -> int:
    """Run a command; the exit code is 0 ok, 1 the data or the pipeline failed, 2 usage."""
    # Wherever it stands: who needs it has just seen an error and presses the up key.
    debug = "--debug" in arguments
    words = [word for word in arguments if word != "--debug"]
    try:
        return int(app(words, prog_name="headgate", standalone_mode=False) or 0)
    except BrokenPipeError:
        # Whoever read has seen enough, as in `headgate tables | head`.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        if debug:
            traceback.print_exc()
        return _show(error, as_json="--json" in words)


def _show(error: Exception, as_json: bool) -> int:
    match error:
        case HeadgateError():
            show_errors(shown_errors(error), as_json)
            return error.exit_code
        case typer.TyperException():
            context = getattr(error, "ctx", None)
            command = context.command_path if context else "headgate"
            message = error.format_message().rstrip(".")
            shown = ShownError("bad-argument", message, f"{command} --help")
            show_errors([shown], as_json)
            return error.exit_code
        case typer.Abort():
            return 130
        case _:
            message = f"{type(error).__name__}: {error}"
            hint = "this should not happen; --debug shows where it did"
            show_errors([ShownError("unexpected", message, hint)], as_json)
            return 1
