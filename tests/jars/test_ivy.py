from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from headgate.jars.jars import error_lines, find_ivy, ivy_settings_xml, ivy_xml, locked_jars

NAMESPACE = "http://ant.apache.org/ivy/maven"
CONFS = ("spark", "kafka", "registry")


@pytest.mark.parametrize("conf", CONFS)
def test_no_address_is_named(conf: str) -> None:
    text = ivy_xml(conf, locked_jars(conf)) + ivy_settings_xml(Path("cache"))
    assert "://" not in text.replace(NAMESPACE, "")


@pytest.mark.parametrize("conf", CONFS)
def test_every_jar_is_asked_for_and_nothing_comes_along(conf: str) -> None:
    module = ElementTree.fromstring(ivy_xml(conf, locked_jars(conf)))
    asked = module.findall("dependencies/dependency")
    assert [(each.get("org"), each.get("name"), each.get("rev")) for each in asked] == [
        (jar.organisation, jar.name, jar.revision) for jar in locked_jars(conf)
    ]
    assert {each.get("transitive") for each in asked} == {"false"}


def test_classifier_and_extension_are_asked_for() -> None:
    module = ElementTree.fromstring(ivy_xml("registry", locked_jars("registry")))
    artifact = module.find("dependencies/dependency/artifact")
    assert artifact is not None
    assert artifact.get(f"{{{NAMESPACE}}}classifier") == "all"
    assert artifact.get("ext") == "tar.gz"


def test_settings_read_no_poms() -> None:
    settings = ElementTree.fromstring(ivy_settings_xml(Path("cache & more")))
    resolver = settings.find("resolvers/ibiblio")
    assert resolver is not None
    assert resolver.get("usepoms") == "false"


def test_ivy_is_found_without_importing_pyspark() -> None:
    assert find_ivy().is_file()
    code = "import sys, headgate.jars.jars as i; i.find_ivy(); print('pyspark' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "False\n"


def test_unreachable_urls_are_shown_first() -> None:
    output = "\n".join(
        [
            "confs: [kafka]",
            "\t\t:: org.example#a;1: not found",
            *(f"\tServer access error at url {number} (refused)" for number in range(6)),
            ":: USE VERBOSE OR DEBUG MESSAGE LEVEL FOR MORE DETAILS",
        ]
    )
    lines = error_lines(output).splitlines()
    assert lines[0] == "  Server access error at url 0 (refused)"
    assert lines[-1] == "  and 2 more"


def test_last_lines_are_shown_without_a_known_error() -> None:
    assert error_lines("one\n.....\ntwo\n") == "  one\n  two"
