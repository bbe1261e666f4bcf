"""Real servers that receive notices: mail by SMTP, and webhooks by HTTP."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email import message_from_bytes, policy
from email.message import EmailMessage
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, Envelope, Session

from headgate.lab.process import HOST, choose_port


class Mailbox:
    """The messages that a mail server has received."""

    def __init__(self) -> None:
        self.messages: list[EmailMessage] = []
        self.port = 0

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:
        content = envelope.original_content or b""
        message = message_from_bytes(content, policy=policy.default)
        assert isinstance(message, EmailMessage)
        self.messages.append(message)
        return "250 OK"

    @property
    def server(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def subjects(self) -> list[str]:
        return [str(message["Subject"]) for message in self.messages]


@contextmanager
def mail_server() -> Iterator[Mailbox]:
    mailbox = Mailbox()
    mailbox.port = choose_port("mail", requested=None)
    controller = Controller(mailbox, hostname=HOST, port=mailbox.port)
    controller.start()
    try:
        yield mailbox
    finally:
        controller.stop()


class Webhook:
    """The requests that a web server has received."""

    def __init__(self) -> None:
        self.received: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.statuses: list[int] = []
        """Statuses of the next responses; then 200."""
        self.port = 0

    def url(self, path: str = "/notices") -> str:
        return f"http://{HOST}:{self.port}{path}"


@contextmanager
def web_server() -> Iterator[Webhook]:
    webhook = Webhook()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            status = webhook.statuses.pop(0) if webhook.statuses else 200
            if status == 200:
                webhook.received.append({"path": self.path, **json.loads(body)})
            webhook.paths.append(self.path)
            self.send_response(status)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer((HOST, 0), Handler)
    webhook.port = server.server_port
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield webhook
    finally:
        server.shutdown()
        server.server_close()
