from __future__ import annotations

import os

from headgate.cli.next_steps import command_here


def test_command_is_plain_where_it_is_on_the_path() -> None:
    assert command_here(".venv/bin/headgate", "/usr/bin/headgate") == "headgate"


def test_command_is_as_it_was_called_where_it_is_not() -> None:
    assert command_here(os.path.abspath(".venv/bin/headgate"), None) == ".venv/bin/headgate"


def test_command_is_plain_where_python_was_called() -> None:
    assert command_here("/somewhere/pytest", None) == "headgate"
