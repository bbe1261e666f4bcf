"""The command `headgate`."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from typing import Annotated

import typer

from headgate import __version__
from headgate.cli.commands import (
    check,
    demo,
    doctor,
    export,
    grants,
    graph,
    init,
    jars,
    maintain,
    model,
    pending,
    plan,
    quarantine,
    query,
    refresh,
    remove,
    rewind,
    run,
    schema,
    serve,
    services,
    simulate,
    spark,
    status,
    submit,
    tables,
    verify,
    workflow,
)
from headgate.cli.help import CommandsByPurpose, DefaultCommandGroup, GroupedOptions, HelpfulGroup
from headgate.cli.output import ShownError, show_errors, shown_errors
from headgate.cluster.driver import is_databricks
from headgate.errors import HeadgateError

_RENAMED_OPTIONS = {("headgate run", "--replay"): "--from-ledger"}
_SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100}

app = typer.Typer(
    cls=CommandsByPurpose,
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
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """Land streams whose schemas keep changing in Delta Lake: one table per kind of
    record, no restart when a schema changes.

    To see it work, without any server: headgate demo
    """


for command in (
    init.init,
    demo.demo,
    services.up,
    services.down,
    run.run,
    submit.submit,
    status.status,
    tables.tables,
    query.query,
    spark.spark,
    serve.serve,
    plan.plan,
    graph.graph,
    maintain.maintain,
    remove.remove,
    refresh.refresh,
    rewind.rewind,
    verify.verify,
    check.check,
    doctor.doctor,
    jars.jars,
):
    app.command(cls=GroupedOptions)(command)
app.add_typer(simulate.app, name="simulate", cls=HelpfulGroup, context_settings=_SETTINGS)
app.add_typer(schema.app, name="schema", cls=DefaultCommandGroup, context_settings=_SETTINGS)
app.add_typer(quarantine.app, name="quarantine", cls=HelpfulGroup, context_settings=_SETTINGS)
app.add_typer(model.app, name="model", cls=HelpfulGroup, context_settings=_SETTINGS)
app.add_typer(grants.app, name="grants", cls=HelpfulGroup, context_settings=_SETTINGS)
app.add_typer(pending.app, name="pending", cls=HelpfulGroup, context_settings=_SETTINGS)
app.add_typer(workflow.app, name="workflow", cls=HelpfulGroup, context_settings=_SETTINGS)
app.add_typer(export.app, name="export", cls=HelpfulGroup, context_settings=_SETTINGS)


def main() -> None:
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    code = run_command(sys.argv[1:])
    if not is_databricks():
        sys.exit(code)
    if code:
        # A task runs inside of a notebook's interpreter, in which no exit status is certain to
        # fail it, or 0 not to.
        raise RuntimeError(f"headgate failed with status {code}")


def run_command(arguments: Sequence[str]) -> int:
    """Run a command and return its exit code: 0 success, 1 failure, 2 usage error."""
    # Accepted anywhere: it is usually appended to a command that has just failed.
    debug = "--debug" in arguments
    words = [word for word in arguments if word != "--debug"]
    try:
        return int(app(words, prog_name="headgate", standalone_mode=False) or 0)
    except BrokenPipeError:
        # The reader closed the pipe, as in `headgate tables | head`.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        if debug:
            print(_masked(traceback.format_exc()), end="", file=sys.stderr)
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
            renamed = _RENAMED_OPTIONS.get((command, getattr(error, "option_name", "")))
            hint = f"it is now called {renamed}" if renamed else f"{command} --help"
            shown = ShownError("bad-argument", message, hint)
            show_errors([shown], as_json)
            return error.exit_code
        case typer.Abort():
            return 130
        case _:
            message = _masked(f"{type(error).__name__}: {error}")
            hint = "this is a bug in Headgate; run with --debug and report the traceback"
            show_errors([ShownError("unexpected", message, hint)], as_json)
            return 1


def _masked(text: str) -> str:
    from headgate.config.secrets import masked

    return masked(text)
