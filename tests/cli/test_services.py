from __future__ import annotations

from configparser import RawConfigParser
from pathlib import Path

import psutil
import pytest

from headgate.cli.commands.services import _preferred
from headgate.lab.process import HOST, is_free
from headgate.lab.services import Services, find_catalog, find_database, write_services
from tests.cli.conftest import Headgate


def test_down_without_running_services(headgate: Headgate) -> None:
    assert headgate("down").out == "No services are running in .headgate\n"


def test_up_rejects_a_port_in_use(headgate: Headgate) -> None:
    import socket

    with socket.socket() as taken:
        taken.bind((HOST, 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert not is_free(port)
        printed = headgate("up", "--kafka-port", str(port))
    assert printed.code == 1
    assert "[port-in-use]" in printed.err


def test_up_prefers_the_default_port_the_first_time_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headgate.lab.process.is_free", lambda _: True)
    assert _preferred(None, 9092, tmp_path) == 9092
    assert _preferred(1234, 9092, tmp_path) == 1234
    write_services(Services(f"{HOST}:5555", f"http://{HOST}:6666/apis", tmp_path, {}))
    assert _preferred(None, 9092, tmp_path) is None


def test_up_uses_any_port_when_the_default_is_in_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headgate.lab.process.is_free", lambda _: False)
    assert _preferred(None, 9092, tmp_path) is None


def test_up_starts_a_database_alone_and_keeps_its_password_to_itself(headgate: Headgate) -> None:
    try:
        started = headgate("up", "--database")
        again = headgate("up", "--database")
        database = find_database()
    finally:
        stopped = headgate("down")
    assert (started.code, started.err, again.code) == (0, "", 0)
    assert database is not None
    assert f"Up: database at {database.address}" in started.out
    assert f"Already up: database at {database.address}" in again.out
    assert str(database.login_file) in started.out
    assert "headgate simulate shop --database" in started.out
    password = RawConfigParser()
    password.read(database.login_file)
    assert password["client"]["password"] not in started.out + again.out
    assert stopped.out == f"Stopped: database (pid {database.pid})\n"


def test_up_starts_a_metastore_alone_on_this_machine_only(headgate: Headgate) -> None:
    try:
        started = headgate("up", "--catalog")
        again = headgate("up", "--catalog")
        metastore = find_catalog()
        assert metastore is not None
        listening = psutil.Process(metastore.pid).children()[0].net_connections()
    finally:
        stopped = headgate("down")
    assert (started.code, started.err, again.code) == (0, "", 0)
    assert f"in: {metastore.url}" in started.out
    assert f"Already up: metastore at {metastore.address}" in again.out
    assert {one.laddr.ip.removeprefix("::ffff:") for one in listening} == {HOST}
    assert stopped.out == f"Stopped: metastore (pid {metastore.pid})\n"


@pytest.mark.parametrize(
    "words",
    [
        ["--database", "--kafka-port", "9092"],
        ["--database-port", "3306"],
        ["--catalog-port", "9083"],
        ["--airflow-port", "8080"],
        ["--catalog", "--storage"],
        ["--airflow", "--catalog"],
        ["--airflow", "--kafka-port", "9092"],
    ],
)
def test_up_rejects_ports_of_services_it_does_not_start(
    headgate: Headgate, words: list[str]
) -> None:
    printed = headgate("up", *words)
    assert (printed.code, "[bad-argument]" in printed.err) == (2, True)
    assert not Path(".headgate").exists()


def test_jars_rejects_an_unknown_group(headgate: Headgate) -> None:
    printed = headgate("jars", "sprak")
    assert (printed.code, "unknown group of jars `sprak`" in printed.err) == (2, True)


def test_jars_prints_nothing_when_none_are_missing(headgate: Headgate) -> None:
    assert headgate("jars", "spark").code == 0
    printed = headgate("jars", "spark")
    assert (printed.code, printed.out) == (0, "")
