"""Notices of failures, retries and successes, by e-mail and to webhooks."""

from __future__ import annotations

import json
import smtplib
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from email.message import EmailMessage
from email.utils import formatdate, make_msgid
from enum import StrEnum
from functools import partial
from urllib.parse import urlsplit

from headgate.config import Email, InvalidPipeline, Notify, Secret, Workflow
from headgate.config.workflow import is_email
from headgate.errors import HeadgateError

_TIMEOUT = 15.0
"""Seconds for a mail server or a webhook to answer."""
_ATTEMPTS = 3


class Event(StrEnum):
    """What a notice is about."""

    FAILURE = "failure"
    RETRY = "retry"
    SUCCESS = "success"


@dataclass(frozen=True)
class Notice:
    """What recipients learn of a run."""

    event: Event
    workflow: str
    run: str
    machine: str
    step: str | None = None
    """The step that failed."""
    attempt: int = 0
    attempts: int = 0
    """Attempts that the step has, with the first one."""
    error: str | None = None
    log: str | None = None
    next: str | None = None
    """The command to go on with."""

    @property
    def subject(self) -> str:
        match self.event:
            case Event.SUCCESS:
                return f"{self.workflow}: succeeded"
            case Event.RETRY:
                return f"{self.workflow}: {self.step} failed, will be retried"
            case Event.FAILURE:
                return f"{self.workflow}: {self.step} failed"

    @property
    def text(self) -> str:
        attempt = f"{self.attempt} of {self.attempts}" if self.attempts else None
        facts = {
            "Workflow": self.workflow,
            "Step": self.step,
            "Attempt": attempt,
            "Error": self.error,
            "Run": self.run,
            "Machine": self.machine,
            "Log": self.log,
            "Next": self.next,
        }
        return "\n".join(f"{name + ':':<10}{value}" for name, value in facts.items() if value)


class Notifier:
    """Sends notices to the recipients that a workflow declares."""

    def __init__(
        self, notify: Notify, email: Email | None, report: Callable[[str], None] = lambda _: None
    ) -> None:
        self._notify = notify
        self._email = email
        self._report = report

    @classmethod
    def of(cls, workflow: Workflow, report: Callable[[str], None]) -> Notifier:
        """Return the notifier of a workflow. Raises if it has no mail server for its addresses."""
        if workflow.email is None and any(map(is_email, workflow.notify.recipients)):
            raise InvalidPipeline(
                "missing-key",
                "`workflow.notify` has e-mail addresses, but there is no `workflow.email`",
                "declare a mail server: `email: {smtp: smtp.example.com:587, sender: …}`",
            )
        return cls(workflow.notify, workflow.email, report)

    def send(self, notice: Notice) -> None:
        """Send a notice. One that cannot be sent is reported, and does not fail the run."""
        recipients: Sequence[str | Secret] = getattr(self._notify, notice.event)
        addresses = [one for one in recipients if isinstance(one, str) and is_email(one)]
        if addresses and self._email is not None:
            server = self._email.smtp
            with self._reported(f"no e-mail sent by {server}"):
                _repeat(partial(_send_mail, notice, addresses, self._email))
        for one in recipients:
            if not is_email(one):
                shown = str(one) if isinstance(one, Secret) else urlsplit(one).hostname
                with self._reported(f"webhook {shown} not called"):
                    _repeat(partial(_call_webhook, notice, one))

    @contextmanager
    def _reported(self, what: str) -> Iterator[None]:
        try:
            yield
        except HeadgateError as error:
            self._report(f"{what}: {error.message}")
        except Exception as error:
            # Not its message: that may have the URL, which may be a secret.
            self._report(f"{what}: {type(error).__name__}")


def _repeat(send: Callable[[], None]) -> None:
    """Send, and try again if the server did not answer, or is out of order."""
    for _ in range(_ATTEMPTS - 1):
        try:
            return send()
        except smtplib.SMTPResponseException:
            raise  # a login that is repeated may lock the account
        except urllib.error.HTTPError as error:
            if error.code < 500:
                raise
        except OSError:
            pass
    send()


def _send_mail(notice: Notice, addresses: Sequence[str], email: Email) -> None:
    message = EmailMessage()
    message["Subject"] = " ".join(f"[headgate] {notice.subject}".split())
    message["From"] = email.sender
    message["To"] = ", ".join(addresses)
    message["Date"] = formatdate(localtime=False)
    message["Message-ID"] = make_msgid(domain=email.sender.partition("@")[2])
    message.set_content(f"{notice.text}\n")
    parts = urlsplit(f"//{email.smtp}")
    host = parts.hostname or "localhost"
    context = ssl.create_default_context()
    if email.security == "tls":
        client: smtplib.SMTP = smtplib.SMTP_SSL(
            host, parts.port or 465, timeout=_TIMEOUT, context=context
        )
    else:
        client = smtplib.SMTP(host, parts.port or 25, timeout=_TIMEOUT)
    with client:
        if email.security == "starttls":
            client.starttls(context=context)
        if email.password is not None:
            user = email.username
            client.login(
                user.resolve() if isinstance(user, Secret) else user or "",
                email.password.resolve(),
            )
        client.send_message(message)


def _call_webhook(notice: Notice, recipient: str | Secret) -> None:
    url = recipient.resolve() if isinstance(recipient, Secret) else recipient
    if urlsplit(url).scheme not in ("http", "https"):
        raise ValueError("not a URL of HTTP")
    # Slack, Teams and Mattermost show `text`; others have the parts.
    body = {
        "text": f"{notice.subject}\n{notice.text}",
        "event": notice.event,
        "workflow": notice.workflow,
        "step": notice.step,
        "attempt": notice.attempt,
        "error": notice.error,
        "run": notice.run,
        "machine": notice.machine,
    }
    request = urllib.request.Request(
        url, json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=_TIMEOUT):
        pass
