"""Fetches jars with the Ivy that is inside pyspark, so that no other tool has to be installed."""

from __future__ import annotations

import importlib.util
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

from headgate.errors import SetupError
from headgate.local.home import jar_home
from headgate.local.jar_lock import LockedJar
from headgate.local.java import find_java

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


def retrieve(conf: str, jars: Sequence[LockedJar], target: Path, work: Path) -> None:
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
            f"{conf}; jars that you put into {jar_home() / conf} by hand are taken too",
        )


def find_ivy() -> Path:
    """Ivy's jar, found without importing pyspark (which takes a second)."""
    spec = importlib.util.find_spec("pyspark")
    for package in (spec.submodule_search_locations or ()) if spec else ():
        for jar in sorted(Path(package, "jars").glob("ivy-*.jar")):
            return jar
    raise SetupError(
        "jars-missing",
        "there is no Ivy in pyspark to fetch jars with",
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
