"""Locations: paths relative to the pipeline file, or URLs."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Annotated
from urllib.parse import unquote, urlsplit

from pydantic import AfterValidator, BeforeValidator, ValidationInfo

from headgate.config.secret_patterns import contains_secret
from headgate.errors import InvalidPipeline, shown

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")
# `user:password@` in an address; a colon followed by a port number does not count.
_CREDENTIALS = re.compile(r"(?:^|//|,)[^/\s,@]*:(?!/|\d{1,5}/)\S*@")


@dataclass(frozen=True)
class FileContext:
    """The validation context of a loaded file, against which relative paths are resolved."""

    file: str

    @property
    def folder(self) -> str:
        return os.path.dirname(os.path.abspath(self.file))


def folder_of(info: ValidationInfo) -> str:
    """Return the folder of the pipeline file; the working directory without a file."""
    return info.context.folder if isinstance(info.context, FileContext) else os.getcwd()


def absolute(path: str, folder: str) -> str:
    return os.path.normpath(os.path.join(folder, os.path.expanduser(path)))


def is_remote(path: str) -> bool:
    url = _URL.match(path)
    return url is not None and url[1].lower() != "file"


def is_below(place: str, folder: str) -> bool:
    """Whether a path or URL is that of a folder, or of something in it."""
    return f"{place.rstrip('/')}/".startswith(f"{folder.rstrip('/')}/")


def reject_credentials(address: str) -> str:
    if _CREDENTIALS.search(address):
        raise InvalidPipeline(
            "secret-in-file",
            "has a user and password in the URL",
            "remove them from the URL and give `username` and `password` as references,"
            " such as `env:NAME`",
        )
    if is_remote(address) and contains_secret(address):
        raise InvalidPipeline(
            "secret-in-file",
            "has a secret in the URL",
            "remove it from the URL; secrets are references, such as `env:NAME` or `file:/path`",
        )
    return address


def _resolve(path: str, info: ValidationInfo) -> str:
    if not path.strip() or not path.isprintable():
        raise InvalidPipeline("bad-value", f"needs a path, not {shown(path)}")
    reject_credentials(path)
    if path.lower().startswith("file:"):
        return _path_of(path)
    return path.rstrip("/") if is_remote(path) else absolute(path, folder_of(info))


def _path_of(url: str) -> str:
    """Return the path of a `file:` URL."""
    parts = urlsplit(url)
    path = unquote(parts.path)
    if parts.netloc not in ("", "localhost") or not path.startswith("/") or not path.isprintable():
        hint = "an absolute path has three slashes: `file:///data/lake`"
        raise InvalidPipeline("bad-value", f"is not a file on this machine: {shown(url)}", hint)
    return os.path.normpath(path)


def _local(path: str) -> str:
    if is_remote(path):
        raise InvalidPipeline(
            "bad-value",
            f"must be a local folder, not {shown(path)}",
            "use a path, or a URL that starts with `file:///`",
        )
    return path


def _file(path: str) -> str:
    if is_remote(path):
        raise InvalidPipeline("bad-value", f"must be a local file path, not {shown(path)}")
    return path


def _as_text(value: object) -> object:
    return os.fspath(value) if isinstance(value, os.PathLike) else value


Location = Annotated[str, AfterValidator(_resolve), BeforeValidator(_as_text)]
"""An absolute path, or a URL that is not a `file:` URL."""

LocalFolder = Annotated[Location, AfterValidator(_local)]
"""The path of a folder on this machine, which may be given as a `file:` URL."""

LocalFile = Annotated[Location, AfterValidator(_file)]
"""The path of a file on this machine."""
