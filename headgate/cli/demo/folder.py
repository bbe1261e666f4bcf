"""The demo's folder: emptied of what an earlier demo made, and of nothing else."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

from headgate.errors import UsageError
from headgate.examples import find_example

_MARKER = ".headgate-demo"
_MADE = ("games.yaml", "inbox", "schemas", "lake", _MARKER)

# A run of seconds ends before the JVM's second compiler has earned back what it costs, and before
# the snapshot that Spark makes of a table to begin with has.
_QUICK = {
    r"^    # start: .*$": "    start: 0                         # read the log, make no snapshot",
    r"^# spark: .*$": "# Start quickly rather than run fast later.\nspark:\n"
    "  spark.driver.extraJavaOptions: -XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


def prepare_folder(folder: Path, keep: bool = False) -> int:
    """Make the folder ready; returns how many demos it has seen."""
    marker = folder / _MARKER
    seen = _demos_seen(marker)
    if seen is None and folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(
            "already-exists",
            f"{folder} exists and is not a demo's folder, so it is left as it is",
            hint="choose another one with --folder",
        )
    if not keep or seen is None:
        for name in _MADE:
            _remove(folder / name)
        seen = 0
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "games.yaml").write_text(_pipeline_text(), "utf-8")
    marker.write_text(json.dumps({"demos": seen + 1}) + "\n", "utf-8")
    return seen


def _pipeline_text() -> str:
    text = find_example("games-embedded").text()
    for line, instead in _QUICK.items():
        text, found = re.subn(line, instead, text, flags=re.MULTILINE)
        assert found, f"the example has no line {line}"
    return text


def _demos_seen(marker: Path) -> int | None:
    try:
        return int(json.loads(marker.read_text("utf-8"))["demos"])
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (ValueError, KeyError, TypeError):
        # A demo that was stopped while it wrote; the folder is a demo's all the same.
        return 0


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
