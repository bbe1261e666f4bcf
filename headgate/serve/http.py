"""Queries over HTTP: rows as JSON, changes as server-sent events. Needs `headgate[serve]`."""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import logging
import socket
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from dataclasses import dataclass

import pyarrow as pa
import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
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
from headgate.serve.events import ENDED, Chunk, columns_event, end_event, event, keep_alive
from headgate.serve.push import Start, located
from headgate.serve.query import pull
from headgate.serve.readers import Reader, Readers
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
    "too-many-readers": 503,
}
_STARTS = ("token", "since", "from_version", "new")
_LOCAL_NAMES = {"localhost", "127.0.0.1", "::1"}

_log = logging.getLogger(__name__)


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

    def allows(self, request: Request) -> bool:
        if self.token is None:
            # A page on the internet can give its own name the address of this machine.
            return request.url.hostname in {*_LOCAL_NAMES, self.host}
        kind, _, given = request.headers.get("authorization", "").partition(" ")
        same = hmac.compare_digest(given.strip().encode(), self.token.encode())
        return same and kind.lower() == "bearer"


class QueryServer:
    """Answers queries over the tables of one pipeline."""

    def __init__(
        self,
        pipeline: PipelineConfig,
        access: Access | None = None,
        max_readers: int = MAX_READERS,
    ) -> None:
        self.catalog = Catalog(pipeline)
        self.readers = Readers(self.catalog)
        self._access, self._max_readers = access or Access(), max_readers
        self._connected = 0
        self._pulls = ThreadPoolExecutor(_PULLS, "rows")

    @property
    def app(self) -> Starlette:
        routes = [
            Route("/", self.about),
            Route("/health", self.health),
            Route("/query", self.query),
        ]
        return Starlette(routes=routes, middleware=[Middleware(_Guard, access=self._access)])

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
        if self._connected >= self._max_readers:
            return problem(self._too_many())
        self._connected += 1
        try:
            response = await self._answer(request)
        except HeadgateError as error:
            self._disconnected()
            return problem(error)
        except BaseException:
            self._disconnected()
            raise
        response.on_close = self._disconnected
        return response

    async def _answer(self, request: Request) -> _Stream:
        given = dict(request.query_params)
        _refuse_unknown(given)
        query = _parsed(given.get("sql", ""))
        if not query.emits_changes:
            if extra := [name for name in _STARTS if name in given]:
                hint = "end the query with EMIT CHANGES"
                raise UsageError("bad-argument", f"{extra[0]} is for changes", hint=hint)
            loop = asyncio.get_running_loop()
            rows = await loop.run_in_executor(self._pulls, pull, self.catalog, query)
            return _Stream(_json_rows(rows), media_type="application/json")
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
        refused = guarded and not self._access.allows(Request(scope))
        app = problem(_not_authorized(self._access)) if refused else self._app
        await app(scope, receive, send)


def _not_authorized(access: Access) -> HeadgateError:
    if access.token is None:
        message, hint = "the name of this server is not a local one", "use localhost"
    else:
        message = "the request has no valid token"
        hint = "send the header Authorization: Bearer TOKEN"
    return UsageError("not-authorized", message, hint)


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


def _refuse_unknown(given: Mapping[str, str]) -> None:
    known = ("sql", *_STARTS)
    for name in given:
        if name not in known:
            hint = did_you_mean(name, known) or f"there are {', '.join(known)}"
            raise UsageError("bad-argument", f"{shown(name)} is not a parameter", hint=hint)


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
    if version is not None and not version.isdecimal():
        hint = "from_version=12 begins with the changes after version 12"
        raise UsageError("bad-argument", f"{shown(version)} is not a version", hint=hint)
    return Start(
        token=given.get("token"),
        from_version=None if version is None else int(version),
        since=Duration.parse(given["since"]) if "since" in given else None,
        only_new=given.get("new", "0") not in ("0", "false"),
    )


async def _json_rows(rows: pa.Table) -> AsyncIterator[bytes]:
    """Return a list of objects, without all of its text in memory."""
    yield b"["
    for at in range(0, len(rows), _ROWS_AT_ONCE):
        part = await asyncio.to_thread(_encoded_rows, rows.slice(at, _ROWS_AT_ONCE))
        yield (b",\n" if at else b"") + part
    yield b"]\n"


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
    ) -> None:
        self.queries = QueryServer(pipeline, Access(host, token), max_readers)
        self._socket = _listen(host, port)
        config = uvicorn.Config(
            self.queries.app,
            log_level="warning",
            access_log=False,
            server_header=False,
            lifespan="off",
            timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
        )
        self._server = _Server(config)
        self._server.on_shutdown = self.queries.readers.stop

    @property
    def url(self) -> str:
        host, port = self._socket.getsockname()[:2]
        return f"http://{f'[{host}]' if ':' in host else host}:{port}"

    def run(self) -> None:
        """Answer until a signal, or until `stop`."""
        self._server.run([self._socket])

    def stop(self) -> None:
        """End all streams, then the server. Any thread may call it."""
        self._server.should_exit = True


class _Server(uvicorn.Server):
    """A server that ends streams before it waits for them."""

    on_shutdown: Callable[[], None]

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.on_shutdown()
        await super().shutdown(sockets)


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(address[:2], family=family, backlog=1_024)
    except OSError as error:
        raise SetupError(
            "port-in-use",
            f"cannot listen on {host} port {port}: {error.strerror}",
            hint="choose another port with --port",
        ) from None


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
