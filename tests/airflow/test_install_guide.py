"""docs/guides/install.md, from nothing to an installation and back, as a reader would run it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from headgate.config import Kafka, load_pipeline
from headgate.errors import SetupError
from headgate.lab.airflow import installed_airflow
from headgate.lab.process import choose_port
from headgate.lab.services import down
from headgate.sources.kafka import topics_found
from tests.run.conftest import places

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "guides" / "install.md").read_text("utf-8")
DEFAULT_PORTS = ("9083", "1025", "8080")


class Reader:
    """Runs the commands of the guide in an empty folder, with free ports."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        taken: list[int] = []
        for _ in DEFAULT_PORTS:
            taken.append(choose_port("guide", requested=None, taken=tuple(taken)))
        self._ports = dict(zip(DEFAULT_PORTS, map(str, taken), strict=True))
        commands = Path(sys.executable).parent
        self._environment = {
            **os.environ,
            "PATH": f"{commands}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
        }

    def follow(self, heading: str) -> str:
        """Run all commands under a heading; return what they printed."""
        section = re.search(rf"^## {heading}\n(.*?)(?=^## |\Z)", GUIDE, re.DOTALL | re.MULTILINE)
        assert section is not None, heading
        blocks = re.findall(r"```sh\n(.*?)```", section[1], re.DOTALL)
        return "".join(self.run(block) for block in blocks)

    def run(self, commands: str) -> str:
        for written, free in self._ports.items():
            commands = re.sub(rf"(?<!\d){written}(?!\d)", free, commands)
        # Into a file: a pipe would be kept open by the servers that it starts.
        output = self.folder.parent / "output"
        with output.open("wb") as out:
            done = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", commands],
                cwd=self.folder,
                env=self._environment,
                stdout=out,
                stderr=subprocess.STDOUT,
                timeout=400,
            )
        text = output.read_text("utf-8", "replace")
        assert done.returncode == 0, f"{commands}\n{text}\n{self._mail()[-2000:]}"
        return text

    def _mail(self) -> str:
        mail = self.folder / "mail.log"
        return mail.read_text() if mail.exists() else ""

    def stop(self) -> None:
        down(self.folder / ".headgate")
        for process in psutil.process_iter(["cmdline"]):
            with suppress(psutil.Error):
                if f"localhost:{self._ports['1025']}" in (process.info["cmdline"] or ()):
                    process.kill()


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    try:
        installed_airflow(print)
    except SetupError as error:
        pytest.skip(error.message)
    (tmp_path / "games").mkdir()
    reader = Reader(tmp_path / "games")
    yield reader
    reader.stop()


@pytest.mark.soak
def test_guide_installs_runs_repairs_grants_and_removes_games(reader: Reader) -> None:
    reader.follow("1. Servers")
    reader.follow("2. The pipeline")
    assert "3 steps, 0 4 * * * (UTC)" in reader.follow("3. Install it, and start the first run")
    landed = reader.follow("4. The producer")
    assert re.search(r"land +succeeded", landed)
    assert re.search(r"report +failed", landed)
    repaired = reader.follow("5. Repair")
    assert "games succeeded" in repaired
    lake = reader.folder / "lake"
    assert places(str(lake)).total() == 5000
    assert {*places(str(lake)).values()} == {1}
    reported = json.loads((reader.folder / "report.json").read_text())
    assert reported["ok"]

    assert "all grants are as declared" in reader.follow("6. Who may read what")
    assert places(str(lake)).total() == 5600
    games = [path.name for path in lake.glob("silver_*_events")]
    assert len(games) == 6
    registry = re.search(r"^registry: (\S+)", (reader.folder / "games.yaml").read_text(), re.M)
    assert registry
    section = GUIDE.partition("## 7. Remove it\n")[2]
    removing, stopping = re.findall(r"```sh\n(.*?)```", section, re.DOTALL)
    removed = reader.run(removing)
    assert "12 privileges revoked" in removed
    assert re.search(r"\d+ catalog entries", removed)
    source = load_pipeline(reader.folder / "games.yaml").source
    assert isinstance(source, Kafka)
    assert not topics_found(source)
    with urllib.request.urlopen(f"{registry[1]}/subjects", timeout=10) as response:
        assert json.load(response) == []
    assert not lake.exists()
    assert not [*(reader.folder / ".headgate" / "airflow" / "dags").glob("*.py")]
    status = reader.run("headgate workflow status games.yaml --target airflow --json")
    assert not json.loads(status)["data"]["is_installed"]
    reader.run(stopping)
    assert {path.name for path in reader.folder.iterdir()} == {
        "games.yaml",
        "mail.log",
        "report.json",
        "report.sh",
    }
