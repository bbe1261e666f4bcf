"""SQL in processes of their own: the only way to bound the time and the memory of any query.

DuckDB looks at interrupts between its vectors, and counts what it keeps in tables. One call of
`range` or `levenshtein` can take hours of the one or all of the other.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import wait
from typing import IO, Any

import pyarrow as pa

from headgate.errors import HeadgateError, LandingError, UsageError
from headgate.lake.duck import Sql, bounded

_ROWS_AT_ONCE = 1 << 14
_LOOK_SECONDS = 0.1
_NICE = 5
_COPIES = 4
"""A worker has the rows that a query reads, its result, and DuckDB's memory; and its code."""
_CODE = 1 << 30
_LEAST_MEMORY = 16 << 20


@dataclass(frozen=True)
class Limits:
    """What one query may use."""

    seconds: float = 60
    memory: int = 1 << 30
    """Bytes of the rows that it reads, of its result, and of what is computed between them."""

    def __post_init__(self) -> None:
        if self.memory < _LEAST_MEMORY:
            hint = "1g is the default"
            message = f"a query needs at least {_LEAST_MEMORY >> 20} MB of memory"
            raise UsageError("bad-argument", message, hint)

    @property
    def too_slow(self) -> HeadgateError:
        return LandingError(
            "query-timeout",
            f"the query has run for {self.seconds:g} seconds, and no query may run longer",
            hint="filter or aggregate more, or declare a part of it as a gold table; "
            "--query-timeout allows more",
        )

    @property
    def too_large(self) -> HeadgateError:
        return LandingError(
            "query-too-large",
            f"the query needs more than {self.memory >> 20:,} MB of memory, and none may have more",
            hint="name the columns, filter or aggregate more, or declare a part of it as a gold "
            "table; --query-memory allows more",
        )


class Workers:
    """Processes that evaluate SQL; as many as queries that run at the same time."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._idle: queue.SimpleQueue[_Worker] = queue.SimpleQueue()
        self._closed = False

    def start(self) -> None:
        """Start a process for the next query."""
        self._idle.put(_Worker(self.limits))

    def take(self) -> _Worker:
        with suppress(queue.Empty):
            while True:
                worker = self._idle.get_nowait()
                if worker.is_alive:
                    return worker
        return _Worker(self.limits)

    def give_back(self, worker: _Worker) -> None:
        if self._closed:
            worker.kill()
            worker.wait()
        elif worker.is_alive:
            self._idle.put(worker)
        else:
            worker.wait()
            self.start()

    def close(self) -> None:
        """End the processes that wait, and others when they are given back."""
        self._closed = True
        with suppress(queue.Empty):
            while True:
                worker = self._idle.get_nowait()
                worker.kill()
                worker.wait()


class BoundedSql:
    """An engine for one query, which another thread may end at any time."""

    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        self._ended: HeadgateError | None = None
        self._worker: _Worker | None = None
        self._lock = threading.Lock()

    def end(self, error: HeadgateError) -> None:
        """Let what runs, and all that follows, end with an error."""
        with self._lock:
            self._ended = self._ended or error
            if self._worker is not None:
                self._worker.kill()

    def bounded(self, portions: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            for portion in bounded(portions, self._workers.limits.memory):
                self._check()
                yield portion
        except LandingError as error:
            raise self._explained(error) from None

    def table(self, sql: str, **views: pa.Table) -> pa.Table:
        worker = self._workers.take()
        try:
            # A worker that starts is kept for the next query, however short this one is.
            while not worker.is_ready(_LOOK_SECONDS):
                self._check()
            with self._lock:
                self._check()
                self._worker = worker
            return worker.table(sql, views)
        except (OSError, EOFError, pa.ArrowException) as error:
            worker.kill()
            worker.wait()
            self._check()
            raise self._workers.limits.too_large from error
        except LandingError as error:
            raise self._explained(error) from None
        finally:
            with self._lock:
                self._worker = None
            self._workers.give_back(worker)

    def _explained(self, error: LandingError) -> HeadgateError:
        return self._workers.limits.too_large if error.code == "query-too-large" else error

    def _check(self) -> None:
        if self._ended is not None:
            raise self._ended


class _Worker:
    """One process, seen from outside."""

    def __init__(self, limits: Limits) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, str(limits.memory)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            start_new_session=True,  # Ctrl-C is for the server
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._in, self._out = self._process.stdin, self._process.stdout
        self._is_ready = False

    def is_ready(self, seconds: float) -> bool:
        """Wait for a while until it has started."""
        if not self._is_ready and wait([self._out.fileno()], seconds):
            _receive(self._out)
            self._is_ready = True
        return self._is_ready

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        self._process.kill()

    def wait(self) -> None:
        """Wait until the process is gone, and close its pipes."""
        self._process.wait()
        for pipe in (self._in, self._out):
            with suppress(OSError):
                pipe.close()

    def table(self, sql: str, views: Mapping[str, pa.Table]) -> pa.Table:
        _send(self._in, {"sql": sql, "views": list(views)})
        for rows in views.values():
            _send_rows(self._in, rows)
        self._in.flush()
        answer = _receive(self._out)
        if "error" in answer:
            raise LandingError(*answer["error"])
        reader = pa.ipc.open_stream(self._out)
        return pa.Table.from_batches(list(reader), reader.schema)


def _send(to: IO[bytes], message: Mapping[str, object]) -> None:
    to.write(json.dumps(message).encode() + b"\n")


def _receive(source: IO[bytes]) -> dict[str, Any]:
    line = source.readline()
    if not line.endswith(b"\n"):
        raise EOFError
    found: dict[str, Any] = json.loads(line)
    return found


def _send_rows(to: IO[bytes], rows: pa.Table) -> None:
    with pa.ipc.new_stream(to, rows.schema) as stream:
        stream.write_table(rows, max_chunksize=_ROWS_AT_ONCE)


_Request = tuple[str, dict[str, pa.Table]]


def _main(memory: int) -> None:
    """Answer requests from standard input, until it is closed."""
    source, to = sys.stdin.buffer, os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    requests: queue.SimpleQueue[_Request] = queue.SimpleQueue()
    sql = Sql(memory)
    _limit_process(_CODE + _COPIES * memory)
    _send(to, {})
    to.flush()
    threading.Thread(target=_read, args=(source, requests), daemon=True).start()
    while True:
        text, views = requests.get()
        try:
            rows = sql.table(text, **views)
        except HeadgateError as error:
            _send(to, {"error": error.parts})
        except (MemoryError, pa.ArrowMemoryError):
            _send(to, {"error": ("query-too-large", "out of memory")})
        else:
            _send(to, {})
            _send_rows(to, rows)
            del rows
        del views
        to.flush()


def _read(source: IO[bytes], requests: queue.SimpleQueue[_Request]) -> None:
    """Read requests, and exit with the server, even in the middle of a query."""
    try:
        while True:
            request = _receive(source)
            views = {name: pa.ipc.open_stream(source).read_all() for name in request["views"]}
            requests.put((request["sql"], views))
            del views
    finally:
        os._exit(0)


def _limit_process(memory: int) -> None:
    with suppress(ImportError, OSError, ValueError, AttributeError):
        os.nice(_NICE)  # the server answers while they compute
        import resource

        resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


if __name__ == "__main__":
    _main(int(sys.argv[1]))
