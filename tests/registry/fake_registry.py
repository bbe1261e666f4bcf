"""An HTTP server with prepared responses in place of a schema registry."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from headgate.registry.folder import FolderRegistry


@dataclass(frozen=True)
class Response:
    """A status and a body, encoded as JSON unless it is bytes."""

    status: int = 200
    body: Any = b""
    content_type: str = "application/vnd.schemaregistry.v1+json"

    @property
    def bytes(self) -> bytes:
        return self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()


UNKNOWN = Response(404, {"error_code": 40403, "message": "Schema 7 not found"})


Responses = dict[str, Response | list[Response] | Callable[[], Response]]


@dataclass
class FakeRegistry:
    """Responses by path; of a list, one per request, and then the last one again."""

    responses: Responses
    url: str = ""
    requests: list[str] = field(default_factory=list)
    authorizations: set[str | None] = field(default_factory=set)

    def response(self, path: str) -> Response:
        self.requests.append(path)
        found = self.responses.get(path, UNKNOWN)
        if isinstance(found, list):
            return found.pop(0) if len(found) > 1 else found[0]
        return found if isinstance(found, Response) else found()


def folder_responses(registry: FolderRegistry) -> Responses:
    """Return the responses of a registry with the subjects and schemas of a folder."""
    subjects = registry.subjects()
    responses: Responses = {"/subjects": Response(body=subjects)}
    for subject in subjects:
        newest = registry.latest(subject)
        for number in range(1, newest.version + 1):
            found = registry.version(subject, number)
            text = registry.fetch(found.schema_id)
            schema = {"schema": text.text, "schemaType": text.schema_type}
            version = {"subject": subject, "version": number}
            response = Response(body={**schema, **version, "id": found.schema_id})
            responses[f"/subjects/{subject}/versions/{number}"] = response
            responses[f"/subjects/{subject}/versions/latest"] = response
            responses[f"/schemas/ids/{found.schema_id}"] = Response(body=schema)
            responses[f"/schemas/ids/{found.schema_id}/versions"] = Response(body=[version])
    return responses


@contextmanager
def fake_registry(
    responses: Responses,
) -> Iterator[FakeRegistry]:
    fake = FakeRegistry(responses)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            fake.authorizations.add(self.headers.get("Authorization"))
            self._send(fake.response(self.path.split("?")[0]))

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self._send(fake.response(f"POST {self.path.split('?')[0]}"))

        def _send(self, response: Response) -> None:
            try:
                self.send_response(response.status)
                self.send_header("Content-Type", response.content_type)
                self.send_header("Content-Length", str(len(response.bytes)))
                self.end_headers()
                self.wfile.write(response.bytes)
            except BrokenPipeError:
                """The client has timed out."""

        def log_message(self, format: str, *args: object) -> None:
            """Keep the output of tests clean."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    fake.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield fake
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
