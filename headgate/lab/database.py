"""A MariaDB server: the installed one, bound to localhost."""

from __future__ import annotations

import configparser
import os
import pwd
import secrets
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from headgate.errors import SetupError
from headgate.lab import require_lab
from headgate.lab.process import (
    HOST,
    DetachedProcess,
    LocalService,
    is_listening,
    start_detached,
)

NAME = "database"
_PROGRAM = "mariadbd"
_LOGIN_TIMEOUT = 3.0
# Where packages install servers; often not on PATH.
_SERVER_FOLDERS = ("/usr/sbin", "/usr/local/sbin", "/usr/libexec")

_SETTINGS = {
    "bind-address": HOST,
    # Relative to the data folder, because socket paths are limited to about 100 bytes.
    "socket": "mariadb.sock",
    "pid-file": "mariadb.pid",
    "skip-name-resolve": "ON",
    "local-infile": "OFF",
    # Log whole rows, with the column names and types at the time of the change.
    "log-bin": "mysql-bin",
    "binlog-format": "ROW",
    "binlog-row-image": "FULL",
    "binlog-row-metadata": "FULL",
    "server-id": "1",
    "character-set-server": "utf8mb4",
    "default-time-zone": "+00:00",
    "explicit-defaults-for-timestamp": "ON",
    # Safe against kill -9; a power failure may lose the last second.
    "innodb-flush-log-at-trx-commit": "2",
    "sync-binlog": "0",
    "performance-schema": "OFF",
    "max-connections": "50",
    "table-open-cache": "400",
    "innodb-log-file-size": "16M",
    "innodb-buffer-pool-size": "32M",
    "aria-pagecache-buffer-size": "8M",
    "key-buffer-size": "1M",
}

USER = "shop"
_GROUP = "client"
_SYSTEM_TABLES = ("mysql_system_tables.sql", "mysql_system_tables_data.sql")


@dataclass(frozen=True)
class DatabaseFolder:
    """The server's data and its login file; the data holds the password's hash."""

    path: Path

    @property
    def data(self) -> Path:
        return self.path / "data"

    @property
    def login_file(self) -> Path:
        return self.path / "login.cnf"

    def port(self) -> int | None:
        """Return the port used last, if any."""
        try:
            return int(self._login()["port"])
        except (KeyError, ValueError):
            return None

    def prepare(self, server: Path) -> None:
        """Create the system tables and the user unless they exist."""
        if self.data.exists():
            return
        self.path.mkdir(parents=True, exist_ok=True)
        unfinished = self.path / "data.unfinished"
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(mode=0o700)
        password = secrets.token_hex(24)
        self._bootstrap(server, unfinished, password)
        self._write_login({"host": HOST, "user": USER, "password": password})
        os.replace(unfinished, self.data)

    def write_port(self, port: int) -> None:
        """Record the port in the login file, for clients."""
        login = self._login()
        if "password" not in login:
            raise SetupError(
                "service-failed",
                f"cannot read the database's password from {self.login_file}",
                hint=f"if you do not need its data, delete {self.path} and try again",
            )
        self._write_login({**login, "port": str(port)})

    def _bootstrap(self, server: Path, data: Path, password: str) -> None:
        # The same as mariadb-install-db, which would need the package with the client programs.
        options = {"datadir": str(data), "innodb-log-file-size": "16M", **as_this_user()}
        command = [str(server), "--no-defaults", "--bootstrap"]
        command += [f"--{key}={value}" for key, value in options.items()]
        statements = _first_statements(_system_tables(server), password)
        run = subprocess.run(
            command,
            input=statements.encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
        if run.returncode != 0:
            output = run.stdout.decode("utf-8", "replace").replace(password, "*****")
            errors = [line for line in output.splitlines() if "[Note]" not in line]
            raise SetupError(
                "service-failed",
                "cannot initialise the database's data folder:\n" + "\n".join(errors),
                hint=f"delete {self.path} and try again",
            )

    def _login(self) -> dict[str, str]:
        parser = configparser.RawConfigParser()
        try:
            parser.read(self.login_file, "utf-8")
            return dict(parser[_GROUP])
        except (configparser.Error, KeyError, UnicodeDecodeError):
            return {}

    def _write_login(self, login: dict[str, str]) -> None:
        parser = configparser.RawConfigParser()
        parser[_GROUP] = login
        unfinished = self.login_file.with_suffix(".unfinished")
        unfinished.unlink(missing_ok=True)
        with os.fdopen(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as it:
            parser.write(it)
        os.replace(unfinished, self.login_file)


def as_this_user() -> dict[str, str]:
    """Return the option that lets the server run as root, if this process is root."""
    return {"user": "root"} if os.geteuid() == 0 else {}


def _first_statements(system_tables: list[Path], password: str) -> str:
    """Return the SQL that creates the system tables and the accounts.

    Root logs in over the socket only, as this system user; the shop's user logs in by password.
    """
    user = f"'{USER}'@'{HOST}'"
    return "\n".join(
        [
            "CREATE DATABASE mysql;",
            "USE mysql;",
            f"SET @auth_root_socket='{_user_name()}';",
            *(file.read_text("utf-8") for file in system_tables),
            # Accounts can be created only after the new grant tables are loaded.
            "FLUSH PRIVILEGES;",
            f"CREATE USER {user} IDENTIFIED BY '{password}';",
            f"GRANT ALL ON `{USER}%`.* TO {user};",
            f"GRANT REPLICATION SLAVE, BINLOG MONITOR ON *.* TO {user};",
            "",
        ]
    )


def _user_name() -> str:
    try:
        name = pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        # In some containers the user id has no name.
        return "root"
    return name.replace("\\", "\\\\").replace("'", "''")


def _system_tables(server: Path) -> list[Path]:
    shares = [server.resolve().parent.parent / "share", Path("/usr/share")]
    for share in shares:
        for folder in (share / "mysql", share / "mariadb"):
            files = [folder / name for name in _SYSTEM_TABLES]
            if all(file.is_file() for file in files):
                return files
    raise SetupError(
        "database-missing",
        f"the files that {server} creates its system tables from are missing "
        f"({' and '.join(_SYSTEM_TABLES)})",
        hint="reinstall the server: apt-get install --reinstall mariadb-server-core",
    )


class Database(LocalService):
    """A running server, and the file that clients log in with; the password is never printed."""

    @property
    def login_file(self) -> Path:
        """Host, port, user and password in the format of MySQL clients; mode 0600."""
        return database_folder(self.folder).login_file


def database_folder(folder: Path) -> DatabaseFolder:
    """Return the folder of the database's data and login file."""
    return DatabaseFolder(folder / "mariadb")


def find_server() -> Path:
    """Return the installed server; SetupError `database-missing` if it is not installed."""
    places = [os.environ.get("PATH", os.defpath), *_SERVER_FOLDERS]
    found = shutil.which(_PROGRAM, path=os.pathsep.join(places))
    if found is None:
        raise SetupError(
            "database-missing",
            f"the MariaDB server ({_PROGRAM}) is not installed",
            hint="on Debian and Ubuntu: apt-get install mariadb-server-core",
        )
    return Path(found)


def start_database(folder: Path, port: int) -> DetachedProcess:
    """Start the server on its data in `<folder>/mariadb`, without waiting until it is ready."""
    server = find_server()
    home = database_folder(folder)
    home.prepare(server)
    home.write_port(port)
    settings = {"datadir": str(home.data), "port": str(port), **_SETTINGS, **as_this_user()}
    options = [f"--{key}={value}" for key, value in settings.items()]
    return start_detached(NAME, [str(server), "--no-defaults", *options], folder)


def database_answers(folder: Path, port: int) -> bool:
    """Return whether the shop's user can log in to the server on the port."""
    if not is_listening(port):
        return False
    require_lab("pymysql")
    import pymysql

    login = str(database_folder(folder).login_file)
    try:
        pymysql.connect(
            read_default_file=login, ssl_disabled=True, read_timeout=_LOGIN_TIMEOUT
        ).close()
    except pymysql.MySQLError:
        return False
    return True
