"""What runs on this machine: Java, jars, and services to try things with."""

from __future__ import annotations

from headgate.local.database import Database
from headgate.local.fetch_jars import fetch_jars, jar_paths
from headgate.local.home import headgate_home
from headgate.local.java import Java, find_java
from headgate.local.services import DEFAULT_FOLDER, down, find, find_database, up, up_database
from headgate.local.services_file import Services

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
