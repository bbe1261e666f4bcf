"""A server that sends a byte now and then, without an end."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

HOST = "127.0.0.1"
_PAUSE = 0.05


@contextmanager
def trickling_server(
    first: bytes, byte: bytes, certificate: Path | None = None
) -> Iterator[tuple[str, threading.Event]]:
    """Yield the URL of a server that answers with `first` and then the same byte for ever.

    Also an event that is set once a client has closed its connection. With a certificate, which has
    its key in the same file, the server speaks TLS.
    """
    gone, over = threading.Event(), threading.Event()
    server = socket.create_server((HOST, 0))
    server.settimeout(0.1)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    if certificate is not None:
        context.load_cert_chain(certificate)

    def answer(client: socket.socket) -> None:
        with suppress(OSError), client:
            talk = context.wrap_socket(client, server_side=True) if certificate else client
            with talk:
                talk.recv(10_000)
                talk.sendall(first)
                while not over.wait(_PAUSE):
                    talk.sendall(byte)
        gone.set()

    def serve() -> None:
        while not over.is_set():
            with suppress(TimeoutError):
                client, _ = server.accept()
                threading.Thread(target=answer, args=(client,), daemon=True).start()

    serving = threading.Thread(target=serve)
    serving.start()
    scheme = "http" if certificate is None else "https"
    try:
        yield f"{scheme}://{HOST}:{server.getsockname()[1]}", gone
    finally:
        over.set()
        serving.join()
        server.close()


def write_certificate(path: Path) -> None:
    """Write a certificate for this host, and its key, into one file."""
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
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    path.write_bytes(certificate.public_bytes(Encoding.PEM) + secret)
