"""Services with secrets: a package that declares a scheme, and a Databricks workspace."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit


def install_plug_in(folder: Path, scheme: str, code: str) -> Path:
    """Write a distribution whose function `read` reads secrets; return what to import it from."""
    site = folder / "site"
    (site / f"acme_{scheme}-1.0.dist-info").mkdir(parents=True)
    metadata = site / f"acme_{scheme}-1.0.dist-info"
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: acme-{scheme}\nVersion: 1.0")
    entry_points = f"[headgate.secrets]\n{scheme} = acme_{scheme}:read\n"
    (metadata / "entry_points.txt").write_text(entry_points)
    (site / f"acme_{scheme}.py").write_text(code)
    return site


@dataclass
class Workspace:
    """A Databricks workspace that answers `GET /api/2.0/secrets/get`, as documented."""

    secrets: Mapping[str, str]
    """By scope and key, as in a reference."""
    token: str = "token-of-the-workspace"
    host: str = ""
    requests: list[str] = field(default_factory=list)

    @property
    def login(self) -> dict[str, str]:
        """The environment variables with which the SDK finds the workspace."""
        return {"DATABRICKS_HOST": self.host, "DATABRICKS_TOKEN": self.token}

    def answer(self, path: str, authorization: str | None) -> tuple[int, dict[str, str]]:
        parts = urlsplit(path)
        if parts.path == "/.well-known/databricks-config":
            return 200, {"oidc_endpoint": f"{self.host}/oidc", "workspace_id": "1"}
        if parts.path != "/api/2.0/secrets/get":
            return 404, {"error_code": "ENDPOINT_NOT_FOUND", "message": "No API found"}
        if authorization != f"Bearer {self.token}":
            return 403, {"error_code": "PERMISSION_DENIED", "message": "Invalid access token."}
        query = parse_qs(parts.query)
        name = f"{query['scope'][0]}/{query['key'][0]}"
        self.requests.append(name)
        if name not in self.secrets:
            message = f"Secret does not exist with key: {query['key'][0]}"
            return 404, {"error_code": "RESOURCE_DOES_NOT_EXIST", "message": message}
        value = base64.b64encode(self.secrets[name].encode()).decode()
        return 200, {"key": query["key"][0], "value": value}


@contextmanager
def databricks_workspace(secrets: Mapping[str, str]) -> Iterator[Workspace]:
    workspace = Workspace(secrets)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body = workspace.answer(self.path, self.headers.get("Authorization"))
            content = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            """Keep the output of tests clean."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    workspace.host = f"http://127.0.0.1:{server.server_port}"
    try:
        yield workspace
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
