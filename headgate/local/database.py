"""A real MariaDB server: the one that is installed, reachable from this machine only."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from headgate.errors import SetupError
from headgate.local.database_folder import DatabaseFolder, as_this_user
from headgate.local.detached_process import DetachedProcess, start_detached
from headgate.local.ports import HOST, is_answering

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
