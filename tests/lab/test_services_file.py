from __future__ import annotations

from pathlib import Path

import pytest

from headgate.lab.services import Services, read_services, write_services


def test_what_is_written_is_read(tmp_path: Path) -> None:
    services = Services(
        "127.0.0.1:9092", "http://127.0.0.1:8081/apis/ccompat/v7", tmp_path, {"broker": 1}
    )
    write_services(services)
    assert read_services(tmp_path) == services
    assert (services.kafka_port, services.registry_port) == (9092, 8081)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"servers": 1, "registry": 2, "pids": 3}',
        '{"servers": "nowhere", "registry": "http://127.0.0.1:8081", "pids": {}}',
        '{"servers": "127.0.0.1:9092", "registry": "http://127.0.0.1", "pids": {}}',
    ],
)
def test_file_that_cannot_be_used_is_no_record(tmp_path: Path, text: str) -> None:
    (tmp_path / "services.json").write_text(text)
    assert read_services(tmp_path) is None


def test_no_file_is_no_record(tmp_path: Path) -> None:
    assert read_services(tmp_path) is None
