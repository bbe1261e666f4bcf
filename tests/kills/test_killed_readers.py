"""Readers of a push query and the pipeline are killed in turn: readers get every row once."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlencode
from urllib.request import Request, urlopen

import pytest

from tests.kills.launch import launch
from tests.kills.test_kills import COMMAND, KILLED
from tests.kills.workloads import WORKLOADS, read
from tests.models.orders import wait_for
from tests.rounds import some

PIPELINE = """\
name: games
source: {{delta: {{path: {0}/inbox}}}}
registry: {0}/schemas
envelope: confluent
lake: {0}/lake
"""
QUERY = "SELECT _partition, _offset, n FROM silver_a EMIT CHANGES"
SEAMS = ("noted", "before-ledger", "replay-staged")


class Reader(Protocol):
    """Reads in the background until it is killed, and continues after the last whole row."""

    def __init__(self, pipeline: Path) -> None: ...

    def start(self) -> None: ...

    def kill(self) -> None: ...

    def rows(self) -> list[Mapping[str, Any]]: ...


class CommandLine:
    """`headgate query`, whose lines go to a file."""

    def __init__(self, pipeline: Path) -> None:
        self._pipeline, self._file = pipeline, pipeline.with_suffix(".lines")
        self._file.touch()

    def start(self) -> None:
        # The last line may have been cut off.
        text = self._file.read_bytes()
        self._file.write_bytes(text[: text.rfind(b"\n") + 1])
        rows = self.rows()
        token = ["--token", rows[-1]["token"]] if rows else []
        command = [sys.executable, "-m", "headgate", "query", str(self._pipeline), QUERY, *token]
        with self._file.open("ab") as file:
            self._process = subprocess.Popen(command, stdout=file)

    def kill(self) -> None:
        self._process.kill()
        assert self._process.wait() == KILLED

    def rows(self) -> list[Mapping[str, Any]]:
        *lines, _ = self._file.read_text().split("\n")
        return [row for row in map(json.loads, lines) if "token" in row]


class ServerSentEvents:
    """A reader over HTTP, whose server is killed."""

    def __init__(self, pipeline: Path) -> None:
        self._pipeline = pipeline
        self._rows: list[Mapping[str, Any]] = []

    def start(self) -> None:
        command = [sys.executable, "-m", "headgate", "serve", str(self._pipeline), "--port", "0"]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        url = self._process.stdout.readline().split(" on ")[1].split()[0]
        self._thread = threading.Thread(target=self._read, args=(url,))
        self._thread.start()

    def _read(self, url: str) -> None:
        last = {"Last-Event-ID": self._rows[-1]["token"]} if self._rows else {}
        request = Request(f"{url}/query?{urlencode({'sql': QUERY})}", headers=last)
        with suppress(OSError, HTTPException), urlopen(request) as response:
            event = b""
            for line in response:
                event = line if line.startswith(b"event:") else event
                if line.startswith(b"data:") and event == b"event: change\n":
                    self._rows.append(json.loads(line[5:]))

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()
        self._thread.join()

    def rows(self) -> list[Mapping[str, Any]]:
        return [*self._rows]


@pytest.mark.parametrize("kind", some([CommandLine, ServerSentEvents], ServerSentEvents))
def test_killed_readers_of_a_killed_pipeline_get_every_row_once(
    kind: type[Reader], tmp_path: Path
) -> None:
    work, chance = WORKLOADS["games"], random.Random(1)
    work.prepare(tmp_path)
    pipeline = tmp_path / "games.yaml"
    pipeline.write_text(PIPELINE.format(tmp_path))
    _kill_pipeline(tmp_path, "batch-landed")  # there is a table now
    reader = kind(pipeline)
    for seam in SEAMS:
        reader.start()
        _kill_pipeline(tmp_path, seam)
        time.sleep(chance.uniform(0, 1))
        reader.kill()
    work.run(tmp_path)
    work.check(tmp_path)
    expected = _places(read(tmp_path / "lake/silver_a"))
    reader.start()
    wait_for(lambda: len(reader.rows()) >= len(expected))
    reader.kill()
    assert _places(one["row"] for one in reader.rows()) == expected


def _places(rows: Iterable[Mapping[str, Any]]) -> Counter[tuple[int, int]]:
    return Counter((row["_partition"], row["_offset"]) for row in rows)


def _kill_pipeline(folder: Path, seam: str) -> None:
    """Run the pipeline until it reaches a seam; a later run may be past it."""
    run = launch([*COMMAND, "games", str(folder)], folder / f"calls-{seam}", seam)
    assert run.returncode in (KILLED, 0), run.stderr
