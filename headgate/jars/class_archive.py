"""An archive of the classes that Spark loads, with which it starts in half the time.

Java maps the archive into memory instead of reading, checking and linking some 15,000 classes. It
ignores an archive that does not fit its own version or the jars.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from headgate.jars.jars import hold_lock, jar_home, jar_paths
from headgate.jars.java import find_java

_QUIET = "-Xlog:cds=off -Xlog:cds+dynamic=off -Xlog:class+path=off"
_BUILD_TIMEOUT = 300
_MAX_OTHERS = 2
_SMALL_DEMO = (sys.executable, "-m", "headgate", "demo", "--records", "100", "--progress", "none")


def archive_options() -> str | None:
    """Return the options with which Java uses the archive, if there is one."""
    archive = _archive()
    return f"-XX:SharedArchiveFile={archive} -Xshare:auto {_QUIET}" if archive.exists() else None


def build_archive(report: Callable[[str], None]) -> None:
    """Let a small demo write the archive at its end, unless there is one.

    Spark also starts without it, so a failure is no error.
    """
    archive = _archive()
    with hold_lock(archive.parent / "classes.lock"):
        if archive.exists():
            return
        report("Preparing a fast start of Spark (once, about half a minute)")
        # Others may be those of other environments.
        others = archive.parent.glob("classes-*.jsa*")
        for oldest in sorted(others, key=lambda one: one.stat().st_mtime)[:-_MAX_OTHERS]:
            oldest.unlink(missing_ok=True)
        unfinished = archive.with_suffix(".jsa.part")
        dump = f"-XX:ArchiveClassesAtExit={unfinished} -XX:TieredStopAtLevel=1 {_QUIET}"
        try:
            with tempfile.TemporaryDirectory() as folder:
                # It is over when Java is, which holds its output open.
                subprocess.run(
                    [*_SMALL_DEMO, "--folder", f"{folder}/demo"],
                    env={**os.environ, "SPARK_SUBMIT_OPTS": dump},
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    check=True,
                    timeout=_BUILD_TIMEOUT,
                )
            unfinished.replace(archive)
        except (OSError, subprocess.SubprocessError):
            report("Spark will start without an archive of its classes")


def _archive() -> Path:
    """Return the path of the archive for this Java, this Spark and these jars."""
    import pyspark

    java = find_java().path.resolve()
    parts = [
        str(java),
        str(java.stat().st_mtime_ns),
        os.path.realpath(pyspark.__file__),
        pyspark.__version__,
    ]
    parts += map(str, jar_paths("spark"))
    digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
    return jar_home() / f"classes-{digest}.jsa"
