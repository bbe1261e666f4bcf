"""Fetches the recorded jars once and refuses any that is not the one that was recorded."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from headgate.errors import SetupError
from headgate.local import ivy
from headgate.local.file_lock import hold_lock
from headgate.local.home import jar_home
from headgate.local.jar_lock import LockedJar, lock_digest, locked_jars

Retrieve = Callable[[str, Sequence[LockedJar], Path, Path], None]


def fetch_jars(
    confs: Sequence[str], say: Callable[[str], None], retrieve: Retrieve = ivy.retrieve
) -> dict[str, list[Path]]:
    """Make sure that the jars of these confs are there; return them by conf."""
    for conf in confs:
        if not _is_ready(conf):
            _fetch_alone(conf, say, retrieve)
    return {conf: jar_paths(conf) for conf in confs}


def jar_paths(conf: str) -> list[Path]:
    """The verified jars of a conf; SetupError `jars-missing` when they were not fetched."""
    if not _is_ready(conf):
        raise SetupError(
            "jars-missing",
            f"the jars for {conf} are not in {jar_home() / conf}",
            hint=f"run: headgate jars {conf}",
        )
    return [_place(jar) for jar in locked_jars(conf)]


def verify(file: Path, jar: LockedJar) -> None:
    """Delete the file and raise `jar-changed` unless it is the recorded one."""
    if not _fits(file, jar):
        found = _sha256(file)
        file.unlink()
        raise SetupError(
            "jar-changed",
            f"{jar.file_name} is not the file that was recorded: its SHA-256 is {found}, "
            f"recorded is {jar.sha256}; it was deleted",
            hint=f"run: headgate jars {jar.conf}; if it fails again, what stands between this "
            "machine and the jars' repository changes them",
        )


def _fetch_alone(conf: str, say: Callable[[str], None], retrieve: Retrieve) -> None:
    with hold_lock(
        jar_home() / f"{conf}.lock",
        on_wait=lambda: say(f"Waiting: another command fetches jars for {conf}"),
    ):
        # The one waited for may have fetched them.
        if not _is_ready(conf):
            _fetch(conf, say, retrieve)


def _fetch(conf: str, say: Callable[[str], None], retrieve: Retrieve) -> None:
    jars = locked_jars(conf)
    missing = [jar for jar in jars if not _fits(_place(jar), jar)]
    if missing:
        say(f"Fetching {_count(missing)} for {conf} ({_megabytes(missing)})")
        work = jar_home() / f".fetching-{conf}"
        arrived = work / "arrived"
        retrieve(conf, missing, arrived, work)
        (jar_home() / conf).mkdir(exist_ok=True)
        try:
            for jar in missing:
                verify(arrived / jar.file_name, jar)
                os.replace(arrived / jar.file_name, _place(jar))
        finally:
            # Also after a jar was refused: its copy in the cache would be taken again.
            shutil.rmtree(work)
    _stamp(conf).touch()


def _is_ready(conf: str) -> bool:
    # Summing 170 MB at every start would take longer than the rest of the start.
    return _stamp(conf).exists() and all(
        _size(_place(jar)) == jar.size for jar in locked_jars(conf)
    )


def _stamp(conf: str) -> Path:
    # Named after the sums, so that two versions of Headgate can share a jar home.
    return jar_home() / conf / f".verified-{lock_digest(locked_jars(conf))}"


def _place(jar: LockedJar) -> Path:
    return jar_home() / jar.conf / jar.file_name


def _fits(file: Path, jar: LockedJar) -> bool:
    return _size(file) == jar.size and _sha256(file) == jar.sha256


def _size(file: Path) -> int | None:
    return file.stat().st_size if file.is_file() else None


def _sha256(file: Path) -> str:
    with file.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def _count(jars: Sequence[LockedJar]) -> str:
    kind = "jar" if all(jar.extension == "jar" for jar in jars) else "archive"
    return f"{len(jars)} {kind}{'' if len(jars) == 1 else 's'}"


def _megabytes(jars: Sequence[LockedJar]) -> str:
    return f"{max(1, round(sum(jar.size for jar in jars) / 1_000_000))} MB"
