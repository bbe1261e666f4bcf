"""Where Headgate keeps what all pipelines on this machine share: jars and unpacked services."""

from __future__ import annotations

import os
from pathlib import Path


def headgate_home() -> Path:
    """`$HEADGATE_HOME`, or `~/.headgate`. It need not exist yet."""
    chosen = os.environ.get("HEADGATE_HOME")
    return Path(chosen).expanduser().absolute() if chosen else Path.home() / ".headgate"


def jar_home() -> Path:
    """The folder with one folder of jars per conf."""
    return headgate_home() / "jars"
