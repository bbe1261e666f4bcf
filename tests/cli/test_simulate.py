from __future__ import annotations

import json
from pathlib import Path

import pytest
from deltalake import DeltaTable

from tests.cli.conftest import Headgate

_SMALL = ("simulate", "games", "--to", "delta", "--tables", "3", "--versions", "2")


def test_simulate_fills_an_inbox_and_a_folder_of_schemas(
    headgate: Headgate, tmp_path: Path
) -> None:
    printed = headgate(*_SMALL, "--records", "500", "--bad", "10%")
    assert (printed.code, printed.err) == (0, "")
    assert printed.out.startswith("Sent 500 records to inbox in ")
    assert "of them cannot land:" in printed.out
    assert DeltaTable(str(tmp_path / "inbox")).count() == 500
    assert len(list((tmp_path / "schemas").glob("*.proto"))) == 6


def test_simulate_as_json(headgate: Headgate) -> None:
    printed = headgate(*_SMALL, "--records", "500", "--bad", "0.1", "--json")
    data = json.loads(printed.out)["data"]
    assert data["records"] == 500
    assert 20 < sum(data["bad"].values()) < 100
    assert (data["to"], data["registry"]) == ("inbox", "schemas")


def test_simulate_cleans_up_before_it_sends(headgate: Headgate, tmp_path: Path) -> None:
    headgate(*_SMALL, "--records", "100")
    printed = headgate(*_SMALL, "--records", "50", "--clean")
    assert "Removed inbox inbox\nRemoved 6 schemas in schemas\n" in printed.out
    assert DeltaTable(str(tmp_path / "inbox")).count() == 50


def test_simulate_only_cleans_up_what_it_made(headgate: Headgate, tmp_path: Path) -> None:
    headgate(*_SMALL, "--records", "100")
    (tmp_path / "schemas" / "100.mine.proto").write_text("")
    assert headgate(*_SMALL, "--records", "0", "--clean").code == 0
    assert not (tmp_path / "inbox").exists()
    assert [each.name for each in (tmp_path / "schemas").iterdir()] == ["100.mine.proto"]
    again = headgate(*_SMALL, "--records", "0", "--clean")
    assert again.out == "There was nothing to clean up\n"


def test_simulate_does_not_remove_a_folder_that_is_no_inbox(
    headgate: Headgate, tmp_path: Path
) -> None:
    (tmp_path / "inbox").mkdir()
    printed = headgate(*_SMALL, "--clean")
    assert printed.code == 2
    assert (tmp_path / "inbox").is_dir()


@pytest.mark.parametrize("share", ["ten", "101%", "-1", "2"])
def test_simulate_refuses_what_is_no_share(headgate: Headgate, share: str) -> None:
    printed = headgate(*_SMALL, "--bad", share)
    assert printed.code == 2
    assert "hint: write 1% or 0.01" in printed.err


def test_simulate_to_kafka_needs_services(headgate: Headgate) -> None:
    printed = headgate("simulate", "games", "--to", "kafka")
    assert printed.code == 2
    assert "headgate up starts them" in printed.err


def test_simulate_to_nowhere_is_a_usage_error(headgate: Headgate) -> None:
    printed = headgate("simulate", "games", "--to", "kafak")
    assert (printed.code, "use kafka or delta" in printed.err) == (2, True)


def test_simulate_at_a_rate_ends_after_its_records(headgate: Headgate, tmp_path: Path) -> None:
    assert headgate(*_SMALL, "--records", "20", "--rate", "1000").code == 0
    assert DeltaTable(str(tmp_path / "inbox")).count() == 20
