from __future__ import annotations

import os

import pytest

from headgate.cli.output import command_here, print_next_steps


def test_command_is_plain_where_it_is_on_the_path() -> None:
    assert command_here(".venv/bin/headgate", "/usr/bin/headgate") == "headgate"


def test_command_is_as_it_was_called_where_it_is_not() -> None:
    assert command_here(os.path.abspath(".venv/bin/headgate"), None) == ".venv/bin/headgate"


def test_command_is_plain_where_python_was_called() -> None:
    assert command_here("/somewhere/pytest", None) == "headgate"


def test_other_commands_stay_as_they_are(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", [os.path.abspath("bin/headgate")])
    monkeypatch.setenv("PATH", "")
    print_next_steps([("cd headgate_gold", "go there"), ("headgate graph", "draw it")])
    printed = capsys.readouterr().out
    assert "  cd headgate_gold " in printed
    assert "  bin/headgate graph " in printed
