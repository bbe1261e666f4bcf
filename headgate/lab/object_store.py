"""An object store with the API of S3, bound to localhost: versitygw on a local folder."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from headgate.config import Secret, Storage
from headgate.errors import SetupError
from headgate.jars.jars import headgate_home, hold_lock
from headgate.lab.process import (
    HOST,
    DetachedProcess,
    LocalService,
    ServiceFolder,
    is_listening,
    start_detached,
)

NAME = "storage"
BUCKET = "lake"
_PROGRAM = "versitygw"
_MODULE = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"
_REGION = "us-east-1"


class ObjectStore(LocalService):
    """A running store. Its keys are in files that only this user can read."""

    @property
    def settings(self) -> Storage:
        """The `storage` of a pipeline in this store."""
        keys = StoreFolder.of(self.folder)
        return Storage(
            endpoint=f"http://{self.address}",
            region=_REGION,
            access_key=Secret("file", str(keys.access_key)),
            secret_key=Secret("file", str(keys.secret_key)),
        )

    def folder_of(self, url: str) -> Path:
        """Return the folder that has the objects of a URL as files."""
        return StoreFolder.of(self.folder).buckets / url.removeprefix("s3://")

    @property
    def requests(self) -> Path:
        """The file that has a line for each request."""
        return StoreFolder.of(self.folder).path / "requests.log"


@dataclass(frozen=True)
class StoreFolder(ServiceFolder):
    """Buckets, keys and the last port."""

    @classmethod
    def of(cls, folder: Path) -> StoreFolder:
        return cls(folder / NAME)

    @property
    def buckets(self) -> Path:
        return self.path / "buckets"

    @property
    def access_key(self) -> Path:
        return self.path / "access_key"

    @property
    def secret_key(self) -> Path:
        return self.path / "secret_key"

    def prepare(self) -> None:
        """Create the bucket and the keys unless they exist."""
        (self.buckets / BUCKET).mkdir(parents=True, exist_ok=True)
        (self.path / "attributes").mkdir(exist_ok=True)
        for file in (self.access_key, self.secret_key):
            if not file.exists():
                made = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
                with os.fdopen(made, "w") as written:
                    written.write(secrets.token_hex(16))


def find_gateway(report: Callable[[str], None]) -> Path:
    """Return the gateway, which is built if Go is installed; else raise SetupError."""
    installed = shutil.which(_PROGRAM)
    if installed is not None:
        return Path(installed)
    built = headgate_home() / "bin" / _PROGRAM
    with hold_lock(headgate_home() / "bin.lock"):
        if not built.exists():
            _build(built, report)
    return built


def main() -> None:
    """Have the gateway for tests, if there can be one."""
    try:
        find_gateway(print)
    except SetupError as error:
        print(f"{error.message}: tests use a simulated one, without those of many writers")


def _build(target: Path, report: Callable[[str], None]) -> None:
    go = shutil.which("go")
    if go is None:
        raise SetupError(
            "object-store-missing",
            f"the S3 gateway ({_PROGRAM}) is not installed, and Go is missing to build it",
            hint=f"install Go 1.24 or newer, or {_PROGRAM} itself",
        )
    report(f"Building {_PROGRAM} with Go (a few minutes, once)")
    target.parent.mkdir(parents=True, exist_ok=True)
    run = subprocess.run(
        [go, "install", "-ldflags=-s -w", _MODULE],
        env={**os.environ, "GOBIN": str(target.parent)},
        cwd=target.parent,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    if run.returncode != 0:
        lines = run.stdout.decode("utf-8", "replace").splitlines()[-5:]
        raise SetupError(
            "object-store-missing",
            f"{_PROGRAM} could not be built:\n" + "\n".join(f"  {line}" for line in lines),
            hint="check the network, then try again",
        )


def start_object_store(folder: Path, port: int, report: Callable[[str], None]) -> DetachedProcess:
    """Start the gateway on its buckets, without waiting until it is ready."""
    gateway = find_gateway(report)
    home = StoreFolder.of(folder)
    home.prepare()
    home.write_port(port)
    command = [str(gateway), "--port", f"{HOST}:{port}", "--region", _REGION]
    command += ["--access-log", str(home.path / "requests.log"), "--quiet", "--keep-alive"]
    command += ["posix", "--sidecar", str(home.path / "attributes"), str(home.buckets)]
    # Keys in the environment, because all users can read command lines.
    keys = {
        "ROOT_ACCESS_KEY": home.access_key.read_text(),
        "ROOT_SECRET_KEY": home.secret_key.read_text(),
    }
    return start_detached(NAME, command, folder, keys)


def object_store_answers(port: int) -> bool:
    return is_listening(port)


if __name__ == "__main__":
    main()
