"""What runs on this machine: Java, jars, and services to try things with."""

from __future__ import annotations

from headgate.jars.jars import fetch_jars, headgate_home, jar_paths
from headgate.jars.java import Java, find_java
from headgate.lab.database import Database
from headgate.lab.services import (
    DEFAULT_FOLDER,
    Services,
    down,
    find,
    find_database,
    up,
    up_database,
)

__all__ = [
    "DEFAULT_FOLDER",
    "Database",
    "Java",
    "Services",
    "down",
    "fetch_jars",
    "find",
    "find_database",
    "find_java",
    "headgate_home",
    "jar_paths",
    "up",
    "up_database",
]
