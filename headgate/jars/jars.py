"""Download the jars of `jars.lock` once, and verify their checksums."""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from xml.etree import ElementTree

from headgate.errors import SetupError
from headgate.jars.java import find_java

_LOCK_FILE = Path(__file__).with_name("jars.lock")
_LINE = re.compile(
    r"(?P<conf>[a-z0-9]+) "
    r"(?P<organisation>[\w.-]+):(?P<name>[\w.-]+):(?P<revision>[\w.-]+)"
    r"(?::(?P<classifier>[\w.-]+))?(?:@(?P<extension>[\w.]+))? "
    r"(?P<sha256>[0-9a-f]{64}) (?P<size>\d+)",
    re.ASCII,
)


@dataclass(frozen=True)
class LockedJar:
    """A jar to download, with its checksum."""

    conf: str
    organisation: str
    name: str
    revision: str
    classifier: str | None
    extension: str
    sha256: str
    size: int

    @property
    def file_name(self) -> str:
        """Name of the file in the jar folder."""
        classifier = f"-{self.classifier}" if self.classifier else ""
        return f"{self.name}-{self.revision}{classifier}.{self.extension}"


def parse_lock(text: str) -> tuple[LockedJar, ...]:
    """Return the jars listed in a lock file, in order."""
    jars = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line or line.startswith("#"):
            continue
        found = _LINE.fullmatch(line)
        if found is None:
            raise ValueError(
                f"jars.lock line {number}: expected 'conf coordinates sha256 bytes': {line}"
            )
        parts = found.groupdict()
        jars.append(
            LockedJar(
                conf=parts["conf"],
                organisation=parts["organisation"],
                name=parts["name"],
                revision=parts["revision"],
                classifier=parts["classifier"],
                extension=parts["extension"] or "jar",
                sha256=parts["sha256"],
                size=int(parts["size"]),
            )
        )
    return tuple(jars)


@cache
def locked_jars(conf: str) -> tuple[LockedJar, ...]:
    """Return the jars of a group of `jars.lock`, such as `spark`."""
    jars = tuple(jar for jar in parse_lock(_LOCK_FILE.read_text("ascii")) if jar.conf == conf)
    if not jars:
        raise ValueError(f"{conf!r} is not a conf of jars.lock")
    return jars


def lock_digest(jars: Sequence[LockedJar]) -> str:
    """Return a short hash of the files' names and checksums."""
    sums = "\n".join(f"{jar.file_name} {jar.sha256}" for jar in jars)
    return hashlib.sha256(sums.encode()).hexdigest()[:16]


def headgate_home() -> Path:
    """Return `$HEADGATE_HOME` or `~/.headgate`, which may not exist yet."""
    chosen = os.environ.get("HEADGATE_HOME")
    return Path(chosen).expanduser().absolute() if chosen else Path.home() / ".headgate"


def jar_home() -> Path:
    """Return the folder that has one folder of jars per group."""
    return headgate_home() / "jars"


_CLASSIFIER = "{http://ant.apache.org/ivy/maven}classifier"
_LINES_SHOWN = 4


def ivy_xml(conf: str, jars: Sequence[LockedJar]) -> str:
    """Return an Ivy file for exactly these jars, without transitive dependencies."""
    ElementTree.register_namespace("m", "http://ant.apache.org/ivy/maven")
    module = ElementTree.Element("ivy-module", version="2.0")
    ElementTree.SubElement(module, "info", organisation="headgate", module=conf)
    confs = ElementTree.SubElement(module, "configurations")
    ElementTree.SubElement(confs, "conf", name=conf)
    dependencies = ElementTree.SubElement(module, "dependencies")
    for jar in jars:
        dependency = ElementTree.SubElement(
            dependencies,
            "dependency",
            org=jar.organisation,
            name=jar.name,
            rev=jar.revision,
            conf=f"{conf}->default",
            transitive="false",
        )
        artifact = ElementTree.SubElement(
            dependency, "artifact", name=jar.name, type=jar.extension, ext=jar.extension
        )
        if jar.classifier:
            artifact.set(_CLASSIFIER, jar.classifier)
    return _document(module)


def ivy_settings_xml(cache: Path) -> str:
    """Return Ivy settings: the default repository without POMs, and a separate cache."""
    settings = ElementTree.Element("ivysettings")
    # jars.lock has SHA-256 checksums; Ivy's SHA-1 check would cost a request per jar.
    ElementTree.SubElement(settings, "property", name="ivy.checksums", value="")
    ElementTree.SubElement(settings, "settings", defaultResolver="jars")
    limits = ElementTree.SubElement(settings, "timeout-constraints")
    ElementTree.SubElement(
        limits,
        "timeout-constraint",
        name="limits",
        connectionTimeout="20000",
        readTimeout="60000",
    )
    # A shared cache may contain POMs of other tools, and with them transitive dependencies.
    ElementTree.SubElement(settings, "caches", defaultCacheDir=str(cache))
    resolvers = ElementTree.SubElement(settings, "resolvers")
    ElementTree.SubElement(
        resolvers,
        "ibiblio",
        name="jars",
        m2compatible="true",
        usepoms="false",
        timeoutConstraint="limits",
    )
    return _document(settings)


def retrieve_with_ivy(conf: str, jars: Sequence[LockedJar], target: Path, work: Path) -> None:
    """Download the jars into `target`; `work` keeps finished downloads for a retry."""
    work.mkdir(parents=True, exist_ok=True)
    settings_file, module_file = work / "ivysettings.xml", work / "ivy.xml"
    settings_file.write_text(ivy_settings_xml(work / "cache"), "utf-8")
    module_file.write_text(ivy_xml(conf, jars), "utf-8")
    command = [str(find_java().path), "-Xshare:auto", "-jar", str(find_ivy())]
    command += ["-settings", str(settings_file), "-ivy", str(module_file), "-confs", conf]
    command += ["-retrieve", f"{target.name}/[artifact]-[revision](-[classifier]).[ext]"]
    command += ["-types", *sorted({jar.extension for jar in jars})]
    # With a relative pattern: Ivy would read brackets in an absolute path as placeholders.
    run = subprocess.run(
        command,
        cwd=target.parent,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    if run.returncode != 0 or not all((target / jar.file_name).is_file() for jar in jars):
        raise SetupError(
            "jars-missing",
            f"cannot download the jars for {conf}:\n"
            + error_lines(run.stdout.decode("utf-8", "replace")),
            hint=f"check the network, then run: headgate jars {conf}; or copy the jars to "
            f"{jar_home() / conf}",
        )


def find_ivy() -> Path:
    """Return the path of Ivy's jar without importing pyspark, which takes a second."""
    spec = importlib.util.find_spec("pyspark")
    for package in (spec.submodule_search_locations or ()) if spec else ():
        for jar in sorted(Path(package, "jars").glob("ivy-*.jar")):
            return jar
    raise SetupError(
        "jars-missing",
        "cannot download jars: the Ivy jar of pyspark is missing",
        hint="install pyspark into the same environment as headgate",
    )


def error_lines(output: str) -> str:
    """Return the lines of Ivy's output that explain a failure."""
    lines = [line.strip(" :|\t") for line in output.splitlines()]
    # A URL that could not be read is more specific than a jar that was not found.
    for pattern in (r"error at url", r": not found|Exception|\bfailed\b"):
        found = [line for line in lines if re.search(pattern, line, re.IGNORECASE)]
        if found:
            more = len(found) - _LINES_SHOWN
            shown = found[:_LINES_SHOWN] + ([f"and {more} more"] if more > 0 else [])
            break
    else:
        shown = [line for line in lines if line.strip(".-=")][-_LINES_SHOWN:]
    return "\n".join(f"  {line}" for line in shown)


def _document(root: ElementTree.Element) -> str:
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode") + "\n"


@contextmanager
def hold_lock(file: Path, *, on_wait: Callable[[], None] | None = None) -> Iterator[None]:
    """Hold a file lock during the block; call `on_wait` once if another process holds it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("ab") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if on_wait is not None:
                on_wait()
            fcntl.flock(handle, fcntl.LOCK_EX)
        # The file is not deleted: otherwise a third process could lock a new file of that name
        # while a second one still waits for the old one.
        yield


Retrieve = Callable[[str, Sequence[LockedJar], Path, Path], None]


def fetch_jars(
    confs: Sequence[str], report: Callable[[str], None], retrieve: Retrieve | None = None
) -> dict[str, list[Path]]:
    """Download the jars of these groups unless they exist; return their paths by group."""
    for conf in confs:
        if not _is_ready(conf):
            _fetch_locked(conf, report, retrieve or retrieve_with_ivy)
    return {conf: jar_paths(conf) for conf in confs}


def jar_paths(conf: str) -> list[Path]:
    """Return the verified jars of a group; SetupError `jars-missing` if they are not downloaded."""
    if not _is_ready(conf):
        raise SetupError(
            "jars-missing",
            f"the jars for {conf} are missing from {jar_home() / conf}",
            hint=f"run: headgate jars {conf}",
        )
    return [_path(jar) for jar in locked_jars(conf)]


def verify(file: Path, jar: LockedJar) -> None:
    """Delete the file and raise SetupError `jar-changed` if its checksum is wrong."""
    if not _fits(file, jar):
        found = _sha256(file)
        file.unlink()
        raise SetupError(
            "jar-changed",
            f"{jar.file_name} has SHA-256 {found}, expected {jar.sha256}; it was deleted",
            hint=f"run: headgate jars {jar.conf}; if it fails again, check for a proxy or a mirror "
            "that modifies downloads",
        )


def _fetch_locked(conf: str, report: Callable[[str], None], retrieve: Retrieve) -> None:
    with hold_lock(
        jar_home() / f"{conf}.lock",
        on_wait=lambda: report(f"Waiting: another command is downloading jars for {conf}"),
    ):
        # The other process may have downloaded them.
        if not _is_ready(conf):
            _fetch(conf, report, retrieve)


def _fetch(conf: str, report: Callable[[str], None], retrieve: Retrieve) -> None:
    jars = locked_jars(conf)
    missing = [jar for jar in jars if not _fits(_path(jar), jar)]
    if missing:
        report(f"Downloading {_count(missing)} for {conf} ({_megabytes(missing)})")
        work = jar_home() / f".fetching-{conf}"
        arrived = work / "arrived"
        retrieve(conf, missing, arrived, work)
        (jar_home() / conf).mkdir(exist_ok=True)
        try:
            for jar in missing:
                verify(arrived / jar.file_name, jar)
                os.replace(arrived / jar.file_name, _path(jar))
        finally:
            # Also after a checksum error: the cached copy would be used again.
            shutil.rmtree(work)
    _stamp(conf).touch()


def _is_ready(conf: str) -> bool:
    # Hashing 170 MB on every start would take longer than the rest of it.
    return _stamp(conf).exists() and all(_size(_path(jar)) == jar.size for jar in locked_jars(conf))


def _stamp(conf: str) -> Path:
    # Named after the checksums, so that two versions of Headgate can share a folder.
    return jar_home() / conf / f".verified-{lock_digest(locked_jars(conf))}"


def _path(jar: LockedJar) -> Path:
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
