"""A real MariaDB server: the one that is installed, reachable from this machine only."""

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
from headgate.lab.process import HOST, DetachedProcess, is_answering, start_detached

USER = "shop"
_GROUP = "client"
_SYSTEM_TABLES = ("mysql_system_tables.sql", "mysql_system_tables_data.sql")


@dataclass(frozen=True)
class DatabaseFolder:
    """Data and login belong together: the login's password is in the data."""

    path: Path

    @property
    def data(self) -> Path:
        return self.path / "data"

    @property
    def login_file(self) -> Path:
        return self.path / "login.cnf"

    def port(self) -> int | None:
        """The port of last time."""
        try:
            return int(self._login()["port"])
        except (KeyError, ValueError):
            return None

    def prepare(self, server: Path) -> None:
        """Make the system's tables and the user, unless they are there."""
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
        """Tell the clients that come later."""
        login = self._login()
        if "password" not in login:
            raise SetupError(
                "service-failed",
                f"the database's data is there, but not the password of its user: "
                f"{self.login_file} cannot be read",
                hint=f"if nothing in it is needed, delete {self.path} and try again",
            )
        self._write_login({**login, "port": str(port)})

    def _bootstrap(self, server: Path, data: Path, password: str) -> None:
        # What mariadb-install-db does; that needs programs from a package with the clients.
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
            said = run.stdout.decode("utf-8", "replace").replace(password, "*****")
            telling = [line for line in said.splitlines() if "[Note]" not in line]
            raise SetupError(
                "service-failed",
                "the database's folder could not be prepared:\n" + "\n".join(telling),
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
    """The server refuses to run as root unless it is told to."""
    return {"user": "root"} if os.geteuid() == 0 else {}


def _first_statements(system_tables: list[Path], password: str) -> str:
    """Root comes in through the socket and as this system user only; the user by password."""
    user = f"'{USER}'@'{HOST}'"
    return "\n".join(
        [
            "CREATE DATABASE mysql;",
            "USE mysql;",
            f"SET @auth_root_socket='{_user_name()}';",
            *(file.read_text("utf-8") for file in system_tables),
            # Accounts can be made once the tables just made have been read.
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
        # In some containers the user has a number only.
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
        f"{server} is there, but not the files it makes its first tables from "
        f"({' and '.join(_SYSTEM_TABLES)})",
        hint="install the server again: apt-get install --reinstall mariadb-server-core",
    )


NAME = "database"
_PROGRAM = "mariadbd"
_ANSWER_WITHIN = 3.0
# Not on everybody's PATH, but where packages put servers.
_SERVER_FOLDERS = ("/usr/sbin", "/usr/local/sbin", "/usr/libexec")

_SETTINGS = {
    "bind-address": HOST,
    # Sockets have short names only: this one is relative to the data, however deep that lies.
    "socket": "mariadb.sock",
    "pid-file": "mariadb.pid",
    "skip-name-resolve": "ON",
    "local-infile": "OFF",
    # Every change as whole rows, with the names and types that its table had at that moment.
    "log-bin": "mysql-bin",
    "binlog-format": "ROW",
    "binlog-row-image": "FULL",
    "binlog-row-metadata": "FULL",
    "server-id": "1",
    "character-set-server": "utf8mb4",
    "default-time-zone": "+00:00",
    "explicit-defaults-for-timestamp": "ON",
    # It survives being killed; only a power cut may cost it its last second.
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


@dataclass(frozen=True)
class Database:
    """A server that runs, and the file that clients log in with; it never shows the password."""

    folder: Path
    port: int
    pid: int

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def login_file(self) -> Path:
        """Host, port, user and password as MySQL's clients read them; for its owner only."""
        return database_folder(self.folder).login_file


def database_folder(folder: Path) -> DatabaseFolder:
    """Where the database of a folder of services keeps its data and its login."""
    return DatabaseFolder(folder / "mariadb")


def find_server() -> Path:
    """The installed server; SetupError `database-missing` when there is none."""
    places = [os.environ.get("PATH", os.defpath), *_SERVER_FOLDERS]
    found = shutil.which(_PROGRAM, path=os.pathsep.join(places))
    if found is None:
        raise SetupError(
            "database-missing",
            f"the MariaDB server ({_PROGRAM}) is not to be found",
            hint="on Debian and Ubuntu: apt-get install mariadb-server-core",
        )
    return Path(found)


def start_database(folder: Path, port: int) -> DetachedProcess:
    """Start the server on its data in `<folder>/mariadb`; it does not answer yet."""
    server = find_server()
    home = database_folder(folder)
    home.prepare(server)
    home.write_port(port)
    settings = {"datadir": str(home.data), "port": str(port), **_SETTINGS, **as_this_user()}
    options = [f"--{key}={value}" for key, value in settings.items()]
    return start_detached(NAME, [str(server), "--no-defaults", *options], folder)


def database_answers(folder: Path, port: int) -> bool:
    """Whether the server on the port lets its user in."""
    if not is_answering(port):
        return False
    import pymysql

    login = str(database_folder(folder).login_file)
    try:
        pymysql.connect(
            read_default_file=login, ssl_disabled=True, read_timeout=_ANSWER_WITHIN
        ).close()
    except pymysql.MySQLError:
        return False
    return True
