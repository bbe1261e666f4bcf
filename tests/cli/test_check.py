from __future__ import annotations

import json
from pathlib import Path

import pytest

from headgate.examples import find_example
from tests.cli.conftest import Headgate
from tests.cli.snapshot import Snapshot

_GOOD = find_example("games").text()
_BROKEN = {
    "misspelt_key": _GOOD.replace("envelope:", "envlope:"),
    "no_lake": _GOOD.replace("lake: ./lake", ""),
    "two_sources": _GOOD.replace("  kafka:", "  delta: {path: ./inbox}\n  kafka:"),
    "bad_contract": _GOOD.replace("# contract: evolve", "contract: evlove"),
    "bad_template": _GOOD.replace("silver: silver_{route}", "silver: silver_{game}"),
    "wrong_type": _GOOD.replace("topics: [games]", "topics: games"),
    "twice": _GOOD.replace("lake: ./lake", "lake: ./lake\nlake: ./other"),
    "not_yaml": _GOOD.replace("topics: [games]", "topics: [games"),
    "insecure": _GOOD.replace(
        "    # batch",
        "    options: {kafka.sasl.jaas.config: env:JAAS}\n    # batch",
    ),
    "secret": _GOOD.replace(
        "    # security:",
        "    security: {protocol: SASL_SSL, mechanism: PLAIN, username: me, password: hunter2}"
        "\n    # security:",
    ),
}


@pytest.mark.parametrize("case", _BROKEN)
def test_check_locates_the_problem(
    headgate: Headgate, snapshot: Snapshot, tmp_path: Path, case: str
) -> None:
    (tmp_path / "games.yaml").write_text(_BROKEN[case])
    printed = headgate("check", "games.yaml")
    assert (printed.code, printed.err) == (1, "")
    assert "hunter2" not in printed.out
    snapshot.check(printed.out)


def test_check_is_content_with_a_good_file(headgate: Headgate) -> None:
    headgate("init", "games")
    printed = headgate("check")
    assert (printed.code, printed.out) == (0, "games.yaml: ok\n")


def test_check_takes_many_files(headgate: Headgate, tmp_path: Path) -> None:
    (tmp_path / "good.yaml").write_text(_GOOD)
    (tmp_path / "bad.yaml").write_text(_BROKEN["no_lake"])
    printed = headgate("check", "good.yaml", "bad.yaml", "none.yaml")
    assert printed.code == 1
    assert "good.yaml: ok" in printed.out
    assert "[missing-key]" in printed.out
    assert (
        "none.yaml: cannot read the file: No such file or directory [file-not-found]" in printed.out
    )
    assert printed.out.endswith("2 problems in 2 files\n")


def test_check_as_json(headgate: Headgate, tmp_path: Path) -> None:
    (tmp_path / "games.yaml").write_text(_BROKEN["misspelt_key"])
    printed = headgate("check", "games.yaml", "--json")
    assert printed.code == 1
    answer = json.loads(printed.out)
    assert answer["ok"] is False
    (error,) = answer["errors"]
    assert (error["code"], error["file"]) == ("unknown-key", "games.yaml")
    assert error["line"] > 0


def test_check_as_json_when_all_is_well(headgate: Headgate) -> None:
    headgate("init", "games")
    printed = headgate("check", "--json")
    assert printed.code == 0
    assert json.loads(printed.out) == {"ok": True, "data": {"files": ["games.yaml"]}}


@pytest.mark.parametrize(
    "line",
    [
        "password: hunter2",
        "  ssl.key.password: 'hunter2'  # mine",
        "registry: http://me:hunter2@host/",
        "a: {token: hunter2, b: @}",
    ],
)
def test_check_shows_no_secret_whatever_is_wrong(
    headgate: Headgate, tmp_path: Path, line: str
) -> None:
    (tmp_path / "games.yaml").write_text(f"{_GOOD}\n{line}\n  - @\n")
    assert "hunter2" not in headgate("check", "games.yaml").out
