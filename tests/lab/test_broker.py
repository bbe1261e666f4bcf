from __future__ import annotations

from pathlib import Path

import pytest

from headgate.errors import SetupError
from headgate.lab.broker import server_properties


def settings(data: Path) -> dict[str, str]:
    lines = server_properties(data, 9092, 9093).splitlines()
    return dict(line.split("=", 1) for line in lines)


def test_broker_listens_on_this_machine_only() -> None:
    found = settings(Path("/data"))
    assert found["listeners"] == "BROKER://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093"
    assert found["advertised.listeners"] == "BROKER://127.0.0.1:9092"


def test_clients_are_sent_to_the_advertised_port() -> None:
    lines = server_properties(Path("/data"), 9092, 9093, advertised_port=9999).splitlines()
    assert "advertised.listeners=BROKER://127.0.0.1:9999" in lines


def test_one_broker_is_enough_for_every_inner_topic() -> None:
    found = settings(Path("/data"))
    replication = [value for key, value in found.items() if key.endswith("replication.factor")]
    assert replication == ["1", "1", "1"]


def test_folder_name_is_written_as_java_reads_it() -> None:
    assert settings(Path("/dé\\x/😀"))["log.dirs"] == r"/d\u00e9\\x/\ud83d\ude00"


def test_comma_in_the_folder_is_refused() -> None:
    with pytest.raises(SetupError, match="comma") as caught:
        server_properties(Path("/a,b"), 9092, 9093)
    assert caught.value.code == "service-failed"
