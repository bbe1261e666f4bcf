"""Connections to the database that `headgate up --database` started."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pymysql

if TYPE_CHECKING:
    from pymysql.connections import Connection
    from pymysql.cursors import Cursor

    from headgate.local import Database

SHOP = "shop"


def connect(database: Database, name: str | None = None) -> Connection[Cursor]:
    """As the shop's user, in one of its databases; times are in UTC whatever the server's are."""
    return pymysql.connect(
        **_login(database),
        database=name,
        charset="utf8mb4",
        autocommit=True,
        init_command="SET time_zone = '+00:00'",
    )


def connect_for_log(database: Database, **settings: Any) -> Connection[Any]:
    """As the reader of the log wants it, by the names that its settings have now."""
    name = settings.pop("db", None)
    return pymysql.connect(**_login(database), database=name, **settings)


def _login(database: Database) -> dict[str, Any]:
    # Nothing leaves this machine: the client need not read all the certificates it has.
    return {"read_default_file": str(database.login_file), "ssl_disabled": True}
