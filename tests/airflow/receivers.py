"""Servers on this machine that receive notices: a mail server and a webhook."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from email.message import EmailMessage
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, Envelope, Session

from headgate.lab.process import HOST, choose_port


@dataclass
class Received:
    """What has arrived at a server, and its port."""

    port: int
    mails: list[EmailMessage] = field(default_factory=list)
    posts: list[dict[str, Any]] = field(default_factory=list)

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:
        mail = message_from_bytes(envelope.original_content or b"", policy=policy.default)
        assert isinstance(mail, EmailMessage)
        self.mails.append(mail)
        return "250 OK"


@contextmanager
def mail_server() -> Iterator[Received]:
    received = Received(choose_port("mail", requested=None))
    controller = Controller(received, hostname=HOST, port=received.port)
    controller.start()
    yield received
    controller.stop()


@contextmanager
def webhook_server() -> Iterator[Received]:
    posts: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            length = int(self.headers["Content-Length"])
            posts.append({"path": self.path, **json.loads(self.rfile.read(length))})
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer((HOST, 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield Received(server.server_port, posts=posts)
        server.shutdown()
        thread.join()
