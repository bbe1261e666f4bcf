"""A server with the permissions API of Unity Catalog, as its documentation describes it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

_PATH = "/api/2.1/unity-catalog/permissions/"


@dataclass
class Unity:
    """Tables with their privileges by principal, and the requests that were sent."""

    url: str = ""
    tables: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    unknown: set[str] = field(default_factory=set)
    """Principals that do not exist."""
    fails_with: tuple[int, str] | None = None
    requests: list[tuple[str, str, Any]] = field(default_factory=list)
    tokens: set[str | None] = field(default_factory=set)

    def answer(self, method: str, path: str, query: dict[str, list[str]], body: Any) -> Any:
        """Return status and body of an answer."""
        if not path.startswith(_PATH):
            return 404, {"error_code": "ENDPOINT_NOT_FOUND", "message": path}
        kind, _, table = path.removeprefix(_PATH).partition("/")
        self.requests.append((method, f"{kind}/{table}", body or query))
        if self.fails_with is not None:
            return self.fails_with[0], {"error_code": self.fails_with[1], "message": "try later"}
        if table not in self.tables:
            message = f"Table '{table}' does not exist."
            return 404, {"error_code": "TABLE_DOES_NOT_EXIST", "message": message}
        granted = self.tables[table]
        if method == "PATCH":
            for change in body["changes"]:
                if change["principal"] in self.unknown:
                    message = f"Could not find principal with name {change['principal']}"
                    return 404, {"error_code": "PRINCIPAL_DOES_NOT_EXIST", "message": message}
                held = granted.setdefault(change["principal"], [])
                held += [one for one in change.get("add", ()) if one not in held]
                for one in change.get("remove", ()):
                    held.remove(one)
        return 200, self._page(granted, query)

    def _page(self, granted: dict[str, list[str]], query: dict[str, list[str]]) -> Any:
        """Return one principal per page, as small as pages can be."""
        held = [(name, some) for name, some in granted.items() if some]
        at = int(query.get("page_token", ["0"])[0])
        answer: dict[str, Any] = {
            "privilege_assignments": [
                {"principal": name, "privileges": some} for name, some in held[at : at + 1]
            ]
        }
        if at + 1 < len(held):
            answer["next_page_token"] = str(at + 1)
        return answer


@contextmanager
def unity_server() -> Iterator[Unity]:
    unity = Unity()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._answer(None)

        def do_PATCH(self) -> None:
            self._answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

        def _answer(self, body: Any) -> None:
            url = urlsplit(self.path)
            path, query = unquote(url.path), parse_qs(url.query)
            status, answer = unity.answer(self.command, path, query, body)
            if path.startswith(_PATH):  # the SDK asks for the settings of a host without a token
                unity.tokens.add(self.headers["Authorization"])
            text = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, format: str, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    unity.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield unity
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
