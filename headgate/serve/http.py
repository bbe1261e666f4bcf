"""Queries over HTTP: rows as JSON, changes as server-sent events. Needs `headgate[serve]`."""

from __future__ import annotations

import asyncio
import errno
import hmac
import ipaddress
import logging
import math
import re
import socket
import sys
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import pyarrow as pa
import uvicorn
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from headgate.as_json import json_text
from headgate.config import Duration, PipelineConfig
from headgate.errors import (
    CODES,
    HeadgateError,
    LandingError,
    SetupError,
    UsageError,
    did_you_mean,
    shown,
)
from headgate.lake.query import python_rows
from headgate.lake.tables import tables_in
from headgate.serve.catalog import Catalog
from headgate.serve.connection import Connections
from headgate.serve.events import ENDED, Chunk, columns_event, end_event, event, keep_alive
from headgate.serve.push import Start, located
from headgate.serve.query import pull
from headgate.serve.readers import Reader, Readers, run_bounded
from headgate.serve.worker import BoundedSql, Limits, Workers
from headgate.sql.query import QueryText, parse_query

MAX_READERS = 200
_KEEP_ALIVE_SECONDS = 15.0
_MAX_SQL = 16_384
_PULLS = 2
"""Queries for rows that run at the same time."""
_ROWS_AT_ONCE = 1_000
_SHUTDOWN_SECONDS = 5
_STATUS = {
    "not-authorized": 401,
    "table-unknown": 404,
    "table-replaced": 410,
    "version-vacuumed": 410,
    "query-timeout": 422,
    "query-too-large": 422,
    "too-many-readers": 503,
}
_STARTS = ("token", "since", "from_version", "new")
_FLAGS = {"0": False, "false": False, "1": True, "true": True}
_VERSION = re.compile("[0-9]{1,18}")
_LOCAL_NAMES = {"localhost", "127.0.0.1", "::1"}
_HOST = re.compile(r"(?P<name>[a-z0-9.-]+|\[[0-9a-f:.]+\])(:(?P<port>[0-9]{1,5}))?", re.IGNORECASE)
_OWN_SITES = {"same-origin", "none"}
"""What browsers say of requests by pages of this server, and by people themselves."""
_OTHER_CONNECTIONS = 100
"""Connections without a reader: probes, and requests that are refused."""
_OTHER_FILES = 40
"""Descriptors for files of tables, and for workers."""
_ACCEPTED_AT_ONCE, _WAITING_CONNECTIONS = 8, 1_024
_EXHAUSTED = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
_COMPLAINT_SECONDS = 60
_SWITCH_SECONDS = 0.0005
_HELD_RESULTS = 2
"""Results of the largest size that may wait for their readers."""

_log = logging.getLogger(__name__)

_Result = TypeVar("_Result")


@dataclass(frozen=True)
class Access:
    """Who may ask."""

    host: str = "127.0.0.1"
    token: str | None = None
    """The bearer token that every request must have, if any."""

    def __post_init__(self) -> None:
        if self.token is None and not _is_loopback(self.host):
            raise UsageError(
                "bad-argument",
                f"{shown(self.host)} can be reached from other machines, so a token is needed",
                hint="--token-env NAME takes it from an environment variable",
            )

    def refusal(self, headers: Headers) -> HeadgateError | None:
        """Return why a request may not be answered, if so."""
        if self.token is None:
            return self._foreign(headers)
        kind, _, given = headers.get("authorization", "").partition(" ")
        same = hmac.compare_digest(given.strip().encode(), self.token.encode())
        if same and kind.lower() == "bearer":
            return None
        message = "the request has no valid token"
        hint = "send the header Authorization: Bearer TOKEN"
        return UsageError("not-authorized", message, hint)

    def _foreign(self, headers: Headers) -> HeadgateError | None:
        """Refuse pages on the internet: a browser on this machine sends what they ask for."""
        given = headers.getlist("host")
        found = _HOST.fullmatch(given[0]) if len(given) == 1 else None
        port = found["port"] if found else None
        if (
            found is None
            # Such a page can give its own name the address of this machine.
            or found["name"].strip("[]").lower() not in {*_LOCAL_NAMES, self.host}
            or (port is not None and not 0 < int(port) < 65_536)
        ):
            message, hint = "the name of this server is not a local one", "use localhost"
            return UsageError("not-authorized", message, hint)
        origins = headers.getlist("origin")
        own = {f"http://{given[0]}".lower(), f"https://{given[0]}".lower()}
        if any(origin.lower() not in own for origin in origins) or any(
            site.lower() not in _OWN_SITES for site in headers.getlist("sec-fetch-site")
        ):
            message = "the request comes from a page of another origin"
            hint = "start the server with --token-env, and ask it through a proxy"
            return UsageError("not-authorized", message, hint)
        return None


class QueryServer:
    """Answers queries over the tables of one pipeline."""

    def __init__(
        self,
        pipeline: PipelineConfig,
        access: Access | None = None,
        max_readers: int = MAX_READERS,
        limits: Limits | None = None,
    ) -> None:
        self.catalog = Catalog(pipeline)
        self.workers = Workers(limits or Limits())
        self.readers = Readers(self.catalog, self.workers)
        self._access, self._max_readers = access or Access(), max_readers
        self._connected = 0
        self._held_bytes = 0
        self._pulls = ThreadPoolExecutor(_PULLS, "rows")
        self._parsing = ThreadPoolExecutor(1, "parse")

    @property
    def app(self) -> Starlette:
        routes = [
            Route("/", self.about),
            Route("/health", self.health),
            Route("/query", self.query),
        ]
        return Starlette(routes=routes, middleware=[Middleware(_Guard, access=self._access)])

    def stop(self) -> None:
        """Let all readers return, and end all queries."""
        self.readers.stop()
        self.workers.close()

    async def about(self, request: Request) -> Response:
        """Say what there is."""
        lake = self.catalog.pipeline.lake
        tables = [table for table in tables_in(lake) if not table.startswith("_")]
        example = tables[0] if tables else "TABLE"
        bearer = ' -H "Authorization: Bearer $TOKEN"' if self._access.token else ""
        return PlainTextResponse(
            f"Headgate: queries over the tables of {self.catalog.pipeline.name}\n\n"
            f"  curl -NG{bearer} {request.base_url}query \\\n"
            f'    --data-urlencode "sql=SELECT * FROM {example} EMIT CHANGES"\n\n'
            "GET /query?sql=…   with EMIT CHANGES the rows so far, then every change, as\n"
            "                   server-sent events; else the rows as JSON\n"
            "      &token=…     continue after the event with this id, as Last-Event-ID does\n"
            "      &since=10m, &from_version=N, &new=1   begin later\n"
            "GET /health\n\n"
            f"Tables: {', '.join(tables[:100]) or 'none yet'}\n"
        )

    async def health(self, _: Request) -> Response:
        return JSONResponse({"ok": True, "readers": self._connected})

    async def query(self, request: Request) -> Response:
        """Answer a query."""
        if request.headers.get("last-event-id") == ENDED:
            # This is what makes browsers stop.
            return Response(status_code=204)
        held = self._held_bytes > _HELD_RESULTS * self.workers.limits.memory
        if self._connected >= self._max_readers or held:
            return problem(self._too_many())
        self._connected += 1
        try:
            response = await _unless_gone(request, self._answer(request))
        except HeadgateError as error:
            self._disconnected()
            return problem(error)
        except ClientDisconnect:
            self._disconnected()
            return Response(status_code=204)  # the reader has left
        except BaseException:
            self._disconnected()
            raise
        response.on_close = self._disconnected
        return response

    async def _answer(self, request: Request) -> _Stream:
        given = _parameters(request)
        sql = BoundedSql(self.workers)
        query = await self._run(self._parsing, sql, _parsed, given.get("sql", ""))
        if not query.emits_changes:
            if extra := [name for name in _STARTS if name in given]:
                hint = "end the query with EMIT CHANGES"
                raise UsageError("bad-argument", f"{extra[0]} is for changes", hint=hint)
            rows = await self._run(self._pulls, sql, pull, self.catalog, query, sql)
            return _Stream(self._json_rows(rows), media_type="application/json")
        reader = await self.readers.open(query, _start(request, given))
        try:
            columns = columns_event(reader.names, reader.token)
            # Before the response begins: what is wrong with the query is not an event yet.
            first = await reader.next(0)
        except BaseException:
            reader.close()
            raise
        return _Stream(
            self._events(reader, query.limit, columns, first),
            media_type="text/event-stream",
            headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
        )

    async def _events(
        self, reader: Reader, limit: int | None, columns: bytes, chunk: Chunk | None
    ) -> AsyncIterator[bytes]:
        """Send what there is, then wait; a reader that is slow is waited for."""
        count = 0
        try:
            yield columns
            sent = time.monotonic()
            while limit is None or count < limit:
                if chunk is not None and chunk.events:
                    part = chunk if limit is None else chunk.first(limit - count)
                    count += part.changes
                    yield part.events
                    sent = time.monotonic()
                elif time.monotonic() - sent >= _KEEP_ALIVE_SECONDS:
                    yield keep_alive(reader.token)
                    sent = time.monotonic()
                if self.readers.stopped:
                    return
                if limit is None or count < limit:
                    left = sent + _KEEP_ALIVE_SECONDS - time.monotonic()
                    chunk = await reader.next(max(0.0, left))
            yield end_event(count)
        except HeadgateError as error:
            yield event("error", _described(error))
        except Exception as error:
            _log.exception("a query failed")
            yield event("error", {"code": "unexpected", "detail": type(error).__name__})
        finally:
            reader.close()

    async def _json_rows(self, rows: pa.Table) -> AsyncIterator[bytes]:
        """Return a list of objects, without all of its text in memory."""
        size = rows.nbytes
        self._held_bytes += size
        try:
            yield b"["
            for at in range(0, len(rows), _ROWS_AT_ONCE):
                part = await asyncio.to_thread(_encoded_rows, rows.slice(at, _ROWS_AT_ONCE))
                yield (b",\n" if at else b"") + part
            yield b"]\n"
        finally:
            self._held_bytes -= size

    async def _run(
        self,
        threads: ThreadPoolExecutor,
        sql: BoundedSql,
        function: Callable[..., _Result],
        *arguments: object,
    ) -> _Result:
        return await run_bounded(threads, sql, self.workers.limits, function, *arguments)

    def _too_many(self) -> HeadgateError:
        return LandingError(
            "too-many-readers",
            f"there are {self._connected} readers, and no more are allowed",
            hint="try again later, or raise --max-readers",
        )

    def _disconnected(self) -> None:
        self._connected -= 1


class _Stream(StreamingResponse):
    """A response that is closed when its reader is gone."""

    on_close: Callable[[], None]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert isinstance(self.body_iterator, AsyncGenerator)
        try:
            async with aclosing(self.body_iterator):
                await super().__call__(scope, receive, send)
        finally:
            self.on_close()


class _Guard:
    """Refuses requests that may not be answered."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app, self._access = app, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        guarded = scope["type"] == "http" and scope["path"] != "/health"
        refusal = self._access.refusal(Headers(scope=scope)) if guarded else None
        app = self._app if refusal is None else problem(refusal)
        await app(scope, receive, send)


def problem(error: HeadgateError) -> Response:
    """Return an error as problem details (RFC 9457)."""
    status = _STATUS.get(error.code, 400)
    headers = {"WWW-Authenticate": "Bearer"} if status == 401 else {}
    if status == 503:
        headers["Retry-After"] = "5"
    return Response(
        json_text({"title": CODES[error.code], "status": status, **_described(error)}),
        status,
        headers,
        "application/problem+json",
    )


def _described(error: HeadgateError) -> Mapping[str, object]:
    return {
        "code": error.code,
        "detail": error.message,
        "hint": error.hint,
        "where": error.where,
    }


async def _unless_gone(request: Request, answer: Coroutine[Any, Any, _Result]) -> _Result:
    """Return an answer; if its reader leaves before, nothing goes on for it."""
    task = asyncio.create_task(answer)
    gone = asyncio.create_task(_gone(request))
    try:
        await asyncio.wait([task, gone], return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientDisconnect
        return task.result()
    finally:
        task.cancel()
        gone.cancel()


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _parameters(request: Request) -> dict[str, str]:
    """Return the parameters of a request, each of which may be given once."""
    known = ("sql", *_STARTS)
    found: dict[str, str] = {}
    for name, value in request.query_params.multi_items():
        if name not in known:
            hint = did_you_mean(name, known) or f"there are {', '.join(known)}"
            raise UsageError("bad-argument", f"{shown(name)} is not a parameter", hint=hint)
        if name in found:
            raise UsageError("bad-argument", f"{shown(name)} is given twice")
        found[name] = value
    return found


def _parsed(text: str) -> QueryText:
    if not text.strip():
        raise UsageError("bad-argument", "the query is missing", hint="/query?sql=SELECT …")
    if len(text) > _MAX_SQL:
        raise UsageError(
            "bad-argument",
            f"the query has {len(text):,} characters; the limit is {_MAX_SQL:,}",
            hint="declare a part of it as a gold table",
        )
    with located():
        return parse_query(text)


def _start(request: Request, given: Mapping[str, str]) -> Start:
    """Return where to begin: browsers repeat the parameters when they reconnect."""
    if token := request.headers.get("last-event-id"):
        return Start(token=token)
    version = given.get("from_version")
    if version is not None and not _VERSION.fullmatch(version):
        hint = "from_version=12 begins with the changes after version 12"
        raise UsageError("bad-argument", f"{shown(version)} is not a version", hint=hint)
    new = given.get("new", "0")
    if new not in _FLAGS:
        hint = "new=1 begins with new changes"
        raise UsageError("bad-argument", f"{shown(new)} is neither 0 nor 1", hint=hint)
    return Start(
        token=given.get("token"),
        from_version=None if version is None else int(version),
        since=Duration.parse(given["since"]) if "since" in given else None,
        only_new=_FLAGS[new],
    )


def _encoded_rows(rows: pa.Table) -> bytes:
    return ",\n".join(map(json_text, python_rows(rows))).encode()


class HttpServer:
    """A socket that the server answers on, and the server."""

    def __init__(
        self,
        pipeline: PipelineConfig,
        host: str = "127.0.0.1",
        port: int = 0,
        token: str | None = None,
        max_readers: int = MAX_READERS,
        limits: Limits | None = None,
    ) -> None:
        self.queries = QueryServer(pipeline, Access(host, token), max_readers, limits)
        self._socket = _listen(host, port)
        self.connections = Connections(_most_connections(max_readers + _OTHER_CONNECTIONS))
        config = uvicorn.Config(
            self.queries.app,
            http=cast("type[asyncio.Protocol]", self.connections.protocol),
            ws="none",
            backlog=_ACCEPTED_AT_ONCE,
            # Warnings are about requests, which anybody can send at any rate.
            log_level="error",
            access_log=False,
            server_header=False,
            lifespan="off",
            timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
        )
        self._server = _Server(config)
        self._server.on_shutdown = self.queries.stop

    @property
    def url(self) -> str:
        host, port = self._socket.getsockname()[:2]
        return f"http://{f'[{host}]' if ':' in host else host}:{port}"

    def run(self) -> None:
        """Answer until a signal, or until `stop`."""
        # Threads that parse and encode hand over to the event loop, as soon as it has an event.
        before = sys.getswitchinterval()
        sys.setswitchinterval(_SWITCH_SECONDS)
        self.queries.workers.start()
        try:
            self._server.run([self._socket])
        finally:
            self.queries.workers.close()
            sys.setswitchinterval(before)

    def stop(self) -> None:
        """End all streams, then the server. Any thread may call it."""
        self._server.should_exit = True


class _Server(uvicorn.Server):
    """A server that ends streams before it waits for them."""

    on_shutdown: Callable[[], None]
    _complained = -math.inf

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listening in sockets or ():
            # asyncio accepts as many at a time as it lets wait; more could take all descriptors.
            listening.listen(_WAITING_CONNECTIONS)
        asyncio.get_running_loop().set_exception_handler(self._failed)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.on_shutdown()
        await super().shutdown(sockets)

    def _failed(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Log an error, but what can come a thousand times a second once a minute."""
        error = context.get("exception")
        if not isinstance(error, OSError) or error.errno not in _EXHAUSTED:
            loop.default_exception_handler(context)
        elif time.monotonic() - self._complained > _COMPLAINT_SECONDS:
            self._complained = time.monotonic()
            _log.error("connections cannot be accepted: %s", error)


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(address[:2], family=family, backlog=_WAITING_CONNECTIONS)
    except OSError as error:
        raise SetupError(
            "port-in-use",
            f"cannot listen on {host} port {port}: {error.strerror}",
            hint="choose another port with --port",
        ) from None


def _most_connections(wanted: int) -> int:
    """Return how many connections leave enough descriptors for files, and allow more if needed."""
    try:
        import resource
    except ImportError:
        return wanted
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + _OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(hard, needed)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        return max(soft - _OTHER_FILES, soft // 4)
    return wanted


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
