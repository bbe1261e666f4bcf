"""Notices by e-mail over an encrypted connection, with a login, from a real server's view."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from headgate.config import Email, Notify, Secret
from headgate.lab.process import HOST, choose_port
from headgate.workflow.notices import Event, Notice, Notifier
from tests.workflow.receivers import Mailbox

NOTICE = Notice(
    Event.FAILURE,
    "games",
    "run-1",
    "etl-1",
    step="land",
    attempt=11,
    attempts=11,
    error="no disk\r\nBcc: everyone@example.com",
)


class Server:
    """A mail server that wants encryption and a login, and its certificate."""

    def __init__(self, folder: Path) -> None:
        self.mailbox = Mailbox()
        self.mailbox.port = choose_port("mail", requested=None)
        self.logins: list[tuple[bytes, bytes]] = []
        self.certificate = folder / "server.pem"
        key = _write_certificate(self.certificate)
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(self.certificate, key)
        self.controller = Controller(
            self.mailbox,
            hostname=HOST,
            port=self.mailbox.port,
            tls_context=context,
            require_starttls=True,
            auth_required=True,
            authenticator=self._login,
        )

    def _login(
        self, server: SMTP, session: Session, envelope: Envelope, mechanism: str, data: object
    ) -> AuthResult:
        assert isinstance(data, LoginPassword)
        self.logins.append((data.login, data.password))
        return AuthResult(success=data.password == b"hunter2", handled=False)


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    server = Server(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(server.certificate))
    server.controller.start()
    yield server
    server.controller.stop()


def sent(server: Server, password: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setenv("MAIL_PASSWORD", password)
    email = Email(
        smtp=server.mailbox.server,
        sender="headgate@example.com",
        username="etl",
        password=Secret("env", "MAIL_PASSWORD"),
    )
    reported: list[str] = []
    Notifier(Notify(failure="team@example.com"), email, reported.append).send(NOTICE)
    return reported


def test_mail_is_sent_encrypted_and_with_a_login(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert sent(server, "hunter2", monkeypatch) == []
    assert server.logins == [(b"etl", b"hunter2")]
    (message,) = server.mailbox.messages
    assert message["Subject"] == "[headgate] games: land failed"
    assert message["Bcc"] is None
    assert "Attempt:  11 of 11" in message.get_content()


def test_refused_login_is_reported_without_the_password(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    (reported,) = sent(server, "correct-horse", monkeypatch)
    assert reported == f"no e-mail sent by {server.mailbox.server}: SMTPAuthenticationError"
    assert server.mailbox.messages == []
    assert {password for _, password in server.logins} == {b"correct-horse"}


def test_certificate_that_is_not_trusted_gets_no_password(
    server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "missing"))
    (reported,) = sent(server, "hunter2", monkeypatch)
    assert reported.endswith("SSLCertVerificationError")
    assert server.logins == []


def _write_certificate(path: Path) -> Path:
    """Write a certificate for this host, and its key beside it."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, HOST)])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address(HOST))]), False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path.write_bytes(certificate.public_bytes(Encoding.PEM))
    file = path.with_suffix(".key")
    file.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return file
