"""Fetches the recorded jars once and refuses any that is not the one that was recorded."""

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
    r"(?P<conf>[a-z]+) "
    r"(?P<organisation>[\w.-]+):(?P<name>[\w.-]+):(?P<revision>[\w.-]+)"
    r"(?::(?P<classifier>[\w.-]+))?(?:@(?P<extension>[\w.]+))? "
    r"(?P<sha256>[0-9a-f]{64}) (?P<size>\d+)",
    re.ASCII,
)


@dataclass(frozen=True)
class LockedJar:
    """One file to fetch, and how to know that it is the right one."""

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
        """The name the file has in the jar home."""
        classifier = f"-{self.classifier}" if self.classifier else ""
        return f"{self.name}-{self.revision}{classifier}.{self.extension}"


def parse_lock(text: str) -> tuple[LockedJar, ...]:
    """The jars of a lock file's text, in its order."""
    jars = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line or line.startswith("#"):
            continue
        found = _LINE.fullmatch(line)
        if found is None:
            raise ValueError(
                f"jars.lock line {number}: not 'conf coordinates sha256 bytes': {line}"
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
    """The jars of one conf."""
    jars = tuple(jar for jar in parse_lock(_LOCK_FILE.read_text("ascii")) if jar.conf == conf)
    if not jars:
        raise ValueError(f"{conf!r} is not a conf of jars.lock")
    return jars


def lock_digest(jars: Sequence[LockedJar]) -> str:
    """A short name for exactly these files with exactly these sums."""
    sums = "\n".join(f"{jar.file_name} {jar.sha256}" for jar in jars)
    return hashlib.sha256(sums.encode()).hexdigest()[:16]


def headgate_home() -> Path:
    """`$HEADGATE_HOME`, or `~/.headgate`. It need not exist yet."""
    chosen = os.environ.get("HEADGATE_HOME")
    return Path(chosen).expanduser().absolute() if chosen else Path.home() / ".headgate"


def jar_home() -> Path:
    """The folder with one folder of jars per conf."""
    return headgate_home() / "jars"


_CLASSIFIER = "{http://ant.apache.org/ivy/maven}classifier"
_LINES_SHOWN = 4


def ivy_xml(conf: str, jars: Sequence[LockedJar]) -> str:
    """Asks for exactly these files: nothing is looked up in a POM, nothing comes along."""
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
    """Ivy's default repository, read without POMs, with a cache of our own."""
    settings = ElementTree.Element("ivysettings")
    # The SHA-256 sums of jars.lock are checked; Ivy's SHA-1 would be one more request a jar.
    ElementTree.SubElement(settings, "property", name="ivy.checksums", value="")
    ElementTree.SubElement(settings, "settings", defaultResolver="jars")
    limits = ElementTree.SubElement(settings, "timeout-constraints")
    ElementTree.SubElement(
        limits,
        "timeout-constraint",
        name="patience",
        connectionTimeout="20000",
        readTimeout="60000",
    )
    # A cache that another tool filled from POMs would bring their dependencies back.
    ElementTree.SubElement(settings, "caches", defaultCacheDir=str(cache))
    resolvers = ElementTree.SubElement(settings, "resolvers")
    ElementTree.SubElement(
        resolvers,
        "ibiblio",
        name="jars",
        m2compatible="true",
        usepoms="false",
        timeoutConstraint="patience",
    )
    return _document(settings)


def retrieve_with_ivy(conf: str, jars: Sequence[LockedJar], target: Path, work: Path) -> None:
    """Put the jars into `target`; what was downloaded stays in `work` until all are there."""
    work.mkdir(parents=True, exist_ok=True)
    settings_file, module_file = work / "ivysettings.xml", work / "ivy.xml"
    settings_file.write_text(ivy_settings_xml(work / "cache"), "utf-8")
    module_file.write_text(ivy_xml(conf, jars), "utf-8")
    command = [str(find_java().path), "-Xshare:auto", "-jar", str(find_ivy())]
    command += ["-settings", str(settings_file), "-ivy", str(module_file), "-confs", conf]
    command += ["-retrieve", f"{target.name}/[artifact]-[revision](-[classifier]).[ext]"]
    command += ["-types", *sorted({jar.extension for jar in jars})]
    # From within the folder: brackets in its own path would be read as part of the pattern.
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
            f"the jars for {conf} could not be fetched:\n"
            + telling_lines(run.stdout.decode("utf-8", "replace")),
            hint="check the network, then run: headgate jars "
            f"{conf}; jars can also be copied to {jar_home() / conf} by hand",
        )


def find_ivy() -> Path:
    """Ivy's jar, found without importing pyspark (which takes a second)."""
    spec = importlib.util.find_spec("pyspark")
    for package in (spec.submodule_search_locations or ()) if spec else ():
        for jar in sorted(Path(package, "jars").glob("ivy-*.jar")):
            return jar
    raise SetupError(
        "jars-missing",
        "pyspark has no Ivy to fetch jars with",
        hint="install pyspark into the same environment as headgate",
    )


def telling_lines(output: str) -> str:
    """What went wrong, out of the pages that Ivy prints."""
    lines = [line.strip(" :|\t") for line in output.splitlines()]
    # An address that could not be read says more than that the jar was not found.
    for telling in (r"error at url", r": not found|Exception|\bfailed\b"):
        found = [line for line in lines if re.search(telling, line, re.IGNORECASE)]
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
    """Hold the lock for the block; `on_wait` is called once if another process has it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("ab") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if on_wait is not None:
                on_wait()
            fcntl.flock(handle, fcntl.LOCK_EX)
        # The file stays: deleting it would let a third process lock a new file of that name
        # while a second one still waits for the old one.
        yield


Retrieve = Callable[[str, Sequence[LockedJar], Path, Path], None]


def fetch_jars(
    confs: Sequence[str], say: Callable[[str], None], retrieve: Retrieve | None = None
) -> dict[str, list[Path]]:
    """Make sure that the jars of these confs are there; return them by conf."""
    for conf in confs:
        if not _is_ready(conf):
            _fetch_alone(conf, say, retrieve or retrieve_with_ivy)
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
            f"{jar.file_name} does not match jars.lock: its SHA-256 is {found}, "
            f"expected {jar.sha256}; it was deleted",
            hint=f"run: headgate jars {jar.conf}; if it fails again, a proxy between this "
            "machine and the repository changes files",
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
