"""The pack: Headgate and the packages that it requires, as one archive for executors.

It has the files of the installed packages as they are, so that building it needs no network.
PySpark is left out, because a cluster has its own.
"""

from __future__ import annotations

import fcntl
import gzip
import hashlib
import os
import sys
import sysconfig
import tarfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import TYPE_CHECKING

from headgate.errors import SetupError
from headgate.jars.jars import headgate_home, hold_lock

if TYPE_CHECKING:
    from packaging.requirements import Requirement

_OWN = "headgate"
OF_THE_CLUSTER = {"pyspark", "py4j"}
_NOT_PACKED = (".pyc", "direct_url.json")
"""Compiled code, and the path of a source tree."""
_LEVEL = 1
"""Higher levels take longer and save little: most bytes are machine code."""
_FORMAT = "1"
_KEPT = 2
"""Number of earlier packs to keep."""

Report = Callable[[str], None]


@dataclass(frozen=True)
class PackedFile:
    """A file of the pack, and what identifies its content."""

    name: str
    path: Path
    digest: str


def build_pack(report: Report = lambda _: None, extras: Collection[str] = ()) -> Path:
    """Return the pack of this environment, which is built unless there is one.

    It is not deleted while this process runs: Spark sends it to executors that start later.
    """
    packages = required_packages(extras)
    files = sorted(_files(packages), key=lambda file: file.name)
    target = _folder() / _name(packages[_OWN].version, files)
    _folder().mkdir(parents=True, exist_ok=True)
    with hold_lock(
        _folder() / "packs.lock", on_wait=lambda: report("Waiting: another command is packing")
    ):
        if not target.exists():
            size = sum(file.path.stat().st_size for file in files)
            report(
                f"Packing headgate and {len(packages) - 1} packages for executors"
                f" ({size / 1_000_000:.0f} MB, once)"
            )
            _delete_unused()
            unfinished = target.with_suffix(".part")
            _write(unfinished, files)
            unfinished.replace(target)
        os.utime(target)
        _use(target)
    return target


def required_packages(extras: Collection[str] = ()) -> dict[str, Distribution]:
    """Return Headgate and all packages that it requires, by name, as they are installed."""
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    found: dict[str, Distribution] = {}
    wanted: dict[str, set[str]] = {}
    queue: list[tuple[str, frozenset[str]]] = [(_OWN, frozenset(extras))]
    while queue:
        name, more = queue.pop()
        known = wanted.setdefault(name, set())
        if name in found and more <= known:
            continue
        known |= more
        found[name] = package = _installed(name)
        for line in package.requires or ():
            requirement = Requirement(line)
            required = canonicalize_name(requirement.name)
            if required not in OF_THE_CLUSTER and _applies(requirement, known):
                queue.append((required, frozenset(requirement.extras)))
    return found


def _applies(requirement: Requirement, extras: Collection[str]) -> bool:
    marker = requirement.marker
    return marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *extras))


def _installed(name: str) -> Distribution:
    try:
        return distribution(name)
    except PackageNotFoundError:
        raise SetupError(
            "pack-failed",
            f"the package {name} is required, but not installed",
            hint="install headgate with all of its requirements: pip install headgate",
        ) from None


def _files(packages: Mapping[str, Distribution]) -> Iterator[PackedFile]:
    for name, package in packages.items():
        yield from _own_files(package) if name == _OWN else _files_of(name, package)


def _files_of(name: str, package: Distribution) -> Iterator[PackedFile]:
    if package.files is None or '"editable": true' in (package.read_text("direct_url.json") or ""):
        raise SetupError(
            "pack-failed",
            f"the files of the package {name} are unknown",
            hint="install it from a wheel with pip or uv, and not in editable mode",
        )
    for file in package.files:
        # Commands are outside of the folder of packages.
        if ".." not in file.parts and not file.name.endswith(_NOT_PACKED):
            path = Path(str(package.locate_file(file)))
            if path.is_file():
                digest = file.hash.value if file.hash else _digest(path)
                yield PackedFile(file.as_posix(), path, digest)


def _own_files(package: Distribution) -> Iterator[PackedFile]:
    """Return the modules that this process runs, wherever they are, and the metadata."""
    folder = Path(__file__).parents[1]
    for path in folder.rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts:
            name = path.relative_to(folder.parent).as_posix()
            yield PackedFile(name, path, _digest(path))
    for file in package.files or ():
        if file.name == "METADATA":
            path = Path(str(package.locate_file(file)))
            yield PackedFile(file.as_posix(), path, _digest(path))


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _name(version: str, files: Sequence[PackedFile]) -> str:
    """Return the name of a pack, which has a digest of its content and of this Python."""
    python = f"{sys.implementation.cache_tag}-{sysconfig.get_platform()}"
    content = [_FORMAT, python, *(f"{file.name} {file.digest}" for file in files)]
    digest = hashlib.sha256("\n".join(content).encode()).hexdigest()[:16]
    return f"headgate-{version}-{digest}.tar.gz"


def _write(target: Path, files: Sequence[PackedFile]) -> None:
    """Write an archive that is the same for the same files."""
    with (
        target.open("wb") as file,
        gzip.GzipFile("", "wb", _LEVEL, file, mtime=0) as compressed,
        tarfile.open(fileobj=compressed, mode="w|", format=tarfile.PAX_FORMAT) as archive,
    ):
        for one in files:
            with one.path.open("rb") as content:
                entry = tarfile.TarInfo(one.name)
                entry.size = os.fstat(content.fileno()).st_size
                entry.mode = 0o644
                archive.addfile(entry, content)


def _folder() -> Path:
    return headgate_home() / "packs"


_used: dict[Path, int] = {}
"""Packs of this process, with the descriptors that hold their locks."""


def _use(pack: Path) -> None:
    if pack not in _used:
        _used[pack] = os.open(pack, os.O_RDONLY)
        fcntl.flock(_used[pack], fcntl.LOCK_SH)


def _delete_unused() -> None:
    """Delete the oldest packs that no process uses."""
    packs = sorted(_folder().glob("headgate-*.tar.gz"), key=lambda one: one.stat().st_mtime)
    for pack in packs[:-_KEPT]:
        with pack.open("rb") as opened, suppress(BlockingIOError):
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
            pack.unlink()
