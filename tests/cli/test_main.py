from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import headgate as package
from tests.cli.conftest import Headgate
from tests.inspect.small_lake import SmallLake


def test_version(headgate: Headgate) -> None:
    assert headgate("--version").out == f"headgate {package.__version__}\n"


def test_an_unknown_command_is_a_usage_error_with_a_suggestion(headgate: Headgate) -> None:
    printed = headgate("stauts")
    assert (printed.code, printed.out) == (2, "")
    assert printed.err == (
        "error: No such command 'stauts'. Did you mean 'status'? [bad-argument]\n"
        "hint: headgate --help\n"
    )


def test_an_unknown_option_is_a_usage_error(headgate: Headgate) -> None:
    printed = headgate("run", "--onec")
    assert printed.code == 2
    assert printed.err.startswith("error: No such option: --onec")
    assert printed.err.endswith("hint: headgate run --help\n")


def test_a_renamed_option_names_the_new_one(headgate: Headgate) -> None:
    printed = headgate("run", "--replay")
    assert printed.code == 2
    assert printed.err == (
        "error: No such option: --replay [bad-argument]\nhint: it is now called --from-ledger\n"
    )


def test_no_pipeline_here_is_a_usage_error(headgate: Headgate) -> None:
    printed = headgate("status")
    assert (printed.code, printed.out) == (2, "")
    assert printed.err == (
        "error: no pipeline file in this folder [bad-argument]\n"
        "hint: name one, or create one with headgate init\n"
    )


def test_the_only_pipeline_of_a_folder_need_not_be_named(
    headgate: Headgate, tmp_path: Path
) -> None:
    headgate("init", "games-embedded")
    (tmp_path / "settings.yaml").write_text("name: something else\n")
    assert "Nothing has landed yet" in headgate("status").out


def test_of_two_pipelines_one_must_be_named(headgate: Headgate, tmp_path: Path) -> None:
    headgate("init", "games-embedded")
    headgate("init", "confluent")
    printed = headgate("status")
    assert printed.code == 2
    assert "this folder has 2 pipeline files: confluent.yaml, games.yaml" in printed.err


def test_errors_as_json_are_all_that_is_printed(headgate: Headgate) -> None:
    printed = headgate("status", "--json")
    assert (printed.code, printed.err) == (2, "")
    answer = json.loads(printed.out)
    assert answer["ok"] is False
    assert answer["errors"][0]["code"] == "bad-argument"


def test_every_finding_of_a_pipeline_is_shown(headgate: Headgate, tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("name: Bad\nsource: {}\nlake: ./lake\n")
    printed = headgate("status", "bad.yaml")
    assert printed.code == 1
    assert printed.err.count("error:") > 1
    assert "  at bad.yaml:1:7\n" in printed.err


@pytest.mark.parametrize("words", [["--debug", "status"], ["status", "--debug"]])
def test_a_traceback_is_shown_only_when_asked_for(headgate: Headgate, words: list[str]) -> None:
    assert "Traceback" in headgate(*words).err
    assert "Traceback" not in headgate("status").err


def test_an_unexpected_error_has_no_traceback(
    headgate: Headgate, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: object) -> None:
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr("headgate.cli.commands.status.find_pipeline", broken)
    printed = headgate("status")
    assert printed.code == 1
    assert printed.err == (
        "error: ZeroDivisionError: by zero [unexpected]\n"
        "hint: this is a bug in Headgate; run with --debug and report the traceback\n"
    )


def test_a_reader_that_has_seen_enough_is_no_error(lake: SmallLake) -> None:
    command = f"{sys.executable} -m headgate tables {lake.file} | head -n 1"
    run = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, check=False
    )
    assert run.stdout.startswith("TABLE")
    assert run.stderr == ""


def test_the_exit_code_is_that_of_the_process() -> None:
    run = subprocess.run(
        [sys.executable, "-m", "headgate", "run", "--onec"], capture_output=True, check=False
    )
    assert run.returncode == 2
