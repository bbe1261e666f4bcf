from __future__ import annotations

import os
import signal
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import pymysql
import pytest

from headgate.errors import SetupError
from headgate.lab.database import Database, DatabaseFolder, find_server
from headgate.lab.process import HOST
from headgate.lab.services import down, find, find_database, up_database


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "services"
    down(tmp_path / "services")


def ask(database: Database, *statements: str) -> tuple[tuple[object, ...], ...]:
    """The rows of the last statement."""
    login = str(database.login_file)
    with pymysql.connect(read_default_file=login, autocommit=True, ssl_disabled=True) as connection:
        cursor = connection.cursor()
        for statement in statements:
            cursor.execute(statement)
        return cursor.fetchall()


def settings(database: Database, *names: str) -> list[object]:
    (row,) = ask(database, "SELECT " + ", ".join(f"@@{name}" for name in names))
    return list(row)


def test_rows_survive_down_and_up_and_being_killed(folder: Path) -> None:
    reported: list[str] = []
    first = up_database(folder, report=reported.append)
    assert find_database(folder) == first
    assert find(folder) is None
    assert os.getsid(first.pid) == first.pid
    ask(first, "CREATE DATABASE shop", "CREATE TABLE shop.things (id int PRIMARY KEY)")
    ask(first, "INSERT INTO shop.things VALUES (1), (2)")

    assert up_database(folder, report=reported.append) == first
    assert reported[-1] == f"Already up: database at {first.address}"

    assert down(folder) == [f"database (pid {first.pid})"]
    assert find_database(folder) is None
    assert down(folder) == []

    second = up_database(folder, report=reported.append)
    assert (second.port, second.login_file) == (first.port, first.login_file)
    assert ask(second, "SELECT id FROM shop.things") == ((1,), (2,))

    os.kill(second.pid, signal.SIGKILL)
    os.waitpid(second.pid, 0)
    assert find_database(folder) is None
    third = up_database(folder, report=reported.append)
    gone = f"The database (pid {second.pid}) has exited"
    assert any(line.startswith(gone) for line in reported)
    assert ask(third, "SELECT id FROM shop.things") == ((1,), (2,))


def test_log_has_whole_rows_with_names_and_types(database: Database) -> None:
    names = ["log_bin", "binlog_format", "binlog_row_image", "binlog_row_metadata", "time_zone"]
    assert settings(database, *names) == [1, "ROW", "FULL", "FULL", "+00:00"]


def test_server_listens_on_this_machine_only(database: Database) -> None:
    assert settings(database, "bind_address", "port") == [HOST, database.port]


def test_password_is_for_its_owner_only_and_nowhere_else(database: Database) -> None:
    assert stat.S_IMODE(database.login_file.stat().st_mode) == 0o600
    (line,) = [
        line for line in database.login_file.read_text().splitlines() if line.startswith("password")
    ]
    password = line.removeprefix("password = ")
    assert len(password) == 48
    assert password not in repr(database)
    others = [path for path in database.folder.rglob("*") if path.is_file()]
    others.remove(database.login_file)
    assert (database.folder / "database.log") in others
    assert [path for path in others if password.encode() in path.read_bytes()] == []


@pytest.mark.parametrize("user", ["root", "shop", ""])
def test_nobody_comes_in_through_the_port_without_the_password(
    database: Database, user: str
) -> None:
    with pytest.raises(pymysql.OperationalError, match="Access denied"):
        pymysql.connect(host=HOST, port=database.port, user=user, password="guessed")


def test_user_has_no_say_outside_the_shop(database: Database) -> None:
    with pytest.raises(pymysql.OperationalError, match="denied"):
        ask(database, "SELECT * FROM mysql.global_priv")
    with pytest.raises(pymysql.OperationalError, match="denied"):
        ask(database, "CREATE DATABASE other")


def test_unresponsive_database_is_named(folder: Path) -> None:
    database = up_database(folder)
    os.kill(database.pid, signal.SIGSTOP)
    try:
        with pytest.raises(SetupError, match=rf"database \(pid {database.pid}\)") as caught:
            up_database(folder)
    finally:
        os.kill(database.pid, signal.SIGCONT)
    assert caught.value.code == "services-stale"
    assert caught.value.hint == "run: headgate down, then headgate up --database"


def test_busy_port_is_refused_before_anything_starts(folder: Path) -> None:
    with socket.create_server((HOST, 0)) as server, pytest.raises(SetupError) as caught:
        up_database(folder, port=server.getsockname()[1])
    assert caught.value.code == "port-in-use"
    assert not list(folder.glob("*.pid"))


def test_missing_server_has_a_hint(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headgate.lab.database._PROGRAM", "no-such-server")
    with pytest.raises(SetupError) as caught:
        up_database(folder)
    assert caught.value.code == "database-missing"
    assert "apt-get install mariadb-server-core" in (caught.value.hint or "")


def test_missing_login_file_is_an_error(tmp_path: Path) -> None:
    home = DatabaseFolder(tmp_path / "mariadb")
    home.prepare(find_server())
    home.write_port(3306)
    assert home.port() == 3306
    home.login_file.unlink()
    home.prepare(find_server())
    assert home.port() is None
    with pytest.raises(SetupError, match="password") as caught:
        home.write_port(3306)
    assert caught.value.code == "service-failed"


def test_unfinished_data_is_rebuilt(tmp_path: Path) -> None:
    home = DatabaseFolder(tmp_path / "mariadb")
    (home.path / "data.unfinished").mkdir(parents=True)
    (home.path / "data.unfinished" / "ibdata1").write_bytes(b"half")
    home.prepare(find_server())
    assert (home.data / "mysql").is_dir()
    assert not (home.path / "data.unfinished").exists()


def test_folder_that_was_never_up(tmp_path: Path) -> None:
    assert find_database(tmp_path / "nothing") is None
    assert not (tmp_path / "nothing").exists()
