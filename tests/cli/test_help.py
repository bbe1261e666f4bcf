from __future__ import annotations

import subprocess
import sys

import pytest

from tests.cli.conftest import Headgate
from tests.cli.snapshot import Snapshot

COMMANDS = [
    "init",
    "demo",
    "up",
    "down",
    "simulate games",
    "simulate shop",
    "simulate pizza",
    "run",
    "maintain",
    "remove",
    "refresh",
    "status",
    "submit",
    "tables",
    "query",
    "spark",
    "serve",
    "graph",
    "schema",
    "schema show",
    "schema diff",
    "plan",
    "quarantine list",
    "quarantine show",
    "quarantine replay",
    "quarantine drop",
    "grants plan",
    "grants apply",
    "grants revoke",
    "pending list",
    "pending drop",
    "model train",
    "model evaluate",
    "model promote",
    "model list",
    "model explain",
    "workflow render",
    "workflow install",
    "workflow run",
    "workflow repair",
    "workflow status",
    "workflow remove",
    "rewind",
    "verify",
    "export sdp",
    "check",
    "doctor",
    "jars",
]
_HEAVY = ("pyspark", "pyarrow", "deltalake", "pydantic", "confluent_kafka", "pandas", "rich")
_HELP = f"""
import sys
from headgate.cli.main import run_command
code = run_command(sys.argv[1:])
print([name for name in {_HEAVY!r} if name in sys.modules], file=sys.stderr)
sys.exit(code)
"""


@pytest.mark.parametrize("command", COMMANDS)
def test_help_teaches(headgate: Headgate, command: str) -> None:
    printed = headgate(*command.split(), "--help")
    assert printed.code == 0
    assert f"headgate {command}" in printed.out
    assert "Next: headgate" in printed.out


def test_options_are_grouped(headgate: Headgate) -> None:
    options, title, filters = headgate("quarantine", "list", "--help").out.partition("Filters:\n")
    assert title
    assert "Options:\n  --limit N" in options
    assert "--reason REASON" in filters


def test_help_of_headgate(headgate: Headgate, snapshot: Snapshot) -> None:
    printed = headgate("--help")
    assert (printed.code, printed.err) == (0, "")
    snapshot.check(printed.out)


@pytest.mark.parametrize(
    "words", [[], ["simulate"], ["schema"], ["quarantine"], ["pending"], ["export"]]
)
def test_a_group_alone_shows_its_help(headgate: Headgate, words: list[str]) -> None:
    printed = headgate(*words)
    assert printed.code == 0
    assert printed.out.startswith("Usage: headgate")


@pytest.mark.parametrize("words", [["--help"], ["--version"]])
def test_help_loads_nothing_heavy(words: list[str]) -> None:
    run = subprocess.run(
        [sys.executable, "-c", _HELP, *words], capture_output=True, text=True, check=True
    )
    assert run.stderr == "[]\n"


def test_every_command_is_in_the_help(headgate: Headgate) -> None:
    from headgate.cli.main import app

    known = {command.callback.__name__ for command in app.registered_commands if command.callback}
    known |= {str(group.name) for group in app.registered_groups}
    assert known == {command.split()[0] for command in COMMANDS}
