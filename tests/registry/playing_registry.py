"""An HTTP server that plays a schema registry, good or bad, for one test."""

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
class Answer:
    """What the server says: a status and a body, JSON unless it is bytes already."""

    status: int = 200
    body: Any = b""
    kind: str = "application/vnd.schemaregistry.v1+json"

    @property
    def bytes(self) -> bytes:
        return self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()


UNKNOWN = Answer(404, {"error_code": 40403, "message": "Schema 7 not found"})


Answers = dict[str, Answer | list[Answer] | Callable[[], Answer]]


@dataclass
class PlayingRegistry:
    """Answers by path; a list is given answer by answer, and its last one for ever."""

    answers: Answers
    url: str = ""
    asked: list[str] = field(default_factory=list)
    authorizations: set[str | None] = field(default_factory=set)

    def answer(self, path: str) -> Answer:
        self.asked.append(path)
        found = self.answers.get(path, UNKNOWN)
        if isinstance(found, list):
            return found.pop(0) if len(found) > 1 else found[0]
        return found if isinstance(found, Answer) else found()


def playing_the_folder(registry: FolderRegistry) -> Answers:
    """What a registry with the same subjects and schemas answers, soon to be changed."""
    subjects = registry.subjects()
    answers: Answers = {"/subjects": Answer(body=subjects)}
    for subject in subjects:
        newest = registry.latest(subject)
        for number in range(1, newest.version + 1):
            found = registry.version(subject, number)
            text = registry.fetch(found.schema_id)
            schema = {"schema": text.text, "schemaType": text.schema_type}
            version = {"subject": subject, "version": number}
            answer = Answer(body={**schema, **version, "id": found.schema_id})
            answers[f"/subjects/{subject}/versions/{number}"] = answer
            answers[f"/subjects/{subject}/versions/latest"] = answer
            answers[f"/schemas/ids/{found.schema_id}"] = Answer(body=schema)
            answers[f"/schemas/ids/{found.schema_id}/versions"] = Answer(body=[version])
    return answers


@contextmanager
def playing_registry(
    answers: Answers,
) -> Iterator[PlayingRegistry]:
    playing = PlayingRegistry(answers)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            playing.authorizations.add(self.headers.get("Authorization"))
            self._send(playing.answer(self.path.split("?")[0]))

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self._send(playing.answer(f"POST {self.path.split('?')[0]}"))

        def _send(self, answer: Answer) -> None:
            try:
                self.send_response(answer.status)
                self.send_header("Content-Type", answer.kind)
                self.send_header("Content-Length", str(len(answer.bytes)))
                self.end_headers()
                self.wfile.write(answer.bytes)
            except BrokenPipeError:
                """The client did not wait."""

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    playing.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield playing
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
