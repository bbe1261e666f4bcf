"""Canaries: random values in place of secrets, and the search for them in all that a run leaves."""

from __future__ import annotations

import base64
import gzip
import io
import json
import os
import re
import secrets
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

_NEEDLE = 12
"""Characters to search for: plans are cut off, so that not all of a value may be shown."""


@dataclass(frozen=True)
class Canary:
    """A random value. Its word looks the same in URLs, JSON and HTML; the rest must be escaped."""

    word: str = field(default_factory=lambda: secrets.token_hex(16))
    rest: str = ""
    before: str = ""

    @property
    def value(self) -> str:
        return self.before + self.word + self.rest

    def traces(self) -> set[bytes]:
        """Return what shows that a text has the value, be it encoded or cut off."""
        needle = self.word[:_NEEDLE].encode()
        traces = {needle, needle.hex().encode(), needle.decode().encode("utf-16-le")}
        for before in range(3):
            # Without the characters that depend on what is around the needle.
            encoded = base64.b64encode(b"\0" * before + needle + b"\0" * 3)
            inside = encoded[(0, 2, 3)[before] : (before + _NEEDLE) * 8 // 6]
            traces |= {inside, inside.translate(bytes.maketrans(b"+/", b"-_"))}
        return traces


@dataclass
class Evidence:
    """Everything in which no secret may be, by kind of place and name."""

    found: dict[str, dict[str, bytes]] = field(default_factory=dict)

    def add(self, kind: str, name: str, content: bytes | str) -> None:
        raw = content.encode() if isinstance(content, str) else content
        self.found.setdefault(kind, {})[name] = b"\n".join(_readable(raw))

    def add_folder(self, kind: str, folder: Path) -> None:
        for path in folder.rglob("*"):
            with suppress(OSError):  # Spark may delete it meanwhile.
                if path.is_file():
                    self.add(kind, str(path.relative_to(folder)), path.read_bytes())

    def hits(self, canaries: Mapping[str, Canary]) -> list[str]:
        """Return which canary is where."""
        return [
            f"{place} in {kind}: {name}"
            for place, canary in canaries.items()
            for kind, name in self.places_of(canary)
        ]

    def places_of(self, canary: Canary) -> Iterator[tuple[str, str]]:
        seen = re.compile(b"|".join(map(re.escape, canary.traces())))
        for kind, contents in self.found.items():
            for name, content in contents.items():
                if seen.search(content):
                    yield kind, name


def _readable(content: bytes) -> Iterator[bytes]:
    """Yield the content, and what is inside if it is compressed."""
    yield content
    if content.startswith(b"\x1f\x8b"):
        yield from _readable(gzip.decompress(content))
    elif content.startswith(b"\x28\xb5\x2f\xfd"):
        with pa.CompressedInputStream(io.BytesIO(content), "zstd") as stream:
            yield from _readable(stream.read())
    elif content.startswith(b"PAR1"):
        table = pq.read_table(io.BytesIO(content))
        yield str(table.schema.metadata).encode()
        for column in table.columns:
            yield json.dumps(column.to_pylist(), default=_as_text, ensure_ascii=False).encode()


def _as_text(value: object) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


@contextmanager
def command_lines_into(evidence: Evidence) -> Iterator[None]:
    """Record the command lines of all processes that start meanwhile, however short they live."""
    others, ended = _processes(), threading.Event()

    def watch() -> None:
        while not ended.is_set():
            for pid in _processes() - others:
                with suppress(OSError):
                    words = Path(f"/proc/{pid}/cmdline").read_bytes()
                    if words:
                        # A process may replace its program.
                        evidence.add("command lines", f"{pid} {hash(words)}", words)
            time.sleep(0.005)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()


def _processes() -> set[int]:
    return {int(name) for name in os.listdir("/proc") if name.isdigit()}


_LINK = re.compile(r'href="(/[^"#]*)"')
_PAGES = 120
_OF_API = (
    "environment",
    "jobs",
    "stages?details=true",
    "sql?details=true&planDescription=true&length=1000",
    "allexecutors",
    "storage/rdd",
)


def add_spark_ui(evidence: Evidence, url: str) -> None:
    """Fetch every page of Spark's UI that another one links to, and its REST API."""
    api = f"{url}/api/v1/applications"
    (application,) = json.loads(_fetch(api))
    for path in _OF_API:
        evidence.add("Spark REST API", path, _fetch(f"{api}/{application['id']}/{path}"))
    queries = json.loads(_fetch(f"{api}/{application['id']}/sql?length=1000"))
    # A script adds the links to these pages.
    queue, seen = [f"/SQL/execution/?id={query['id']}" for query in queries], set[str]()
    queue += ["/", "/environment/", "/SQL/", "/StreamingQuery/"]
    while queue and len(seen) < _PAGES:
        path = queue.pop(0).replace("&amp;", "&")
        if path in seen or "/static/" in path or "kill" in path:
            continue
        seen.add(path)
        with suppress(OSError):
            page = _fetch(url + path)
            evidence.add("Spark UI", path, page)
            queue += _LINK.findall(page.decode("utf-8", "replace"))


def _fetch(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=20) as response:
        content: Any = response.read()
        return bytes(content)
