"""Where things are: paths relative to the pipeline file, or URLs."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, ValidationInfo

from headgate.errors import InvalidPipeline, shown

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")
# A name, a colon that no port follows, and a password: the part of an address before its `@`.
_CREDENTIALS = re.compile(r"(?:^|//|,)[^/\s,@]*:(?!/|\d{1,5}/)\S*@")


@dataclass(frozen=True)
class Origin:
    """The pipeline file that is being read; goes along as the context of validation."""

    file: str

    @property
    def folder(self) -> str:
        return os.path.dirname(os.path.abspath(self.file))


def folder_of(info: ValidationInfo) -> str:
    """The pipeline file's folder; the working directory for a pipeline built in Python."""
    return info.context.folder if isinstance(info.context, Origin) else os.getcwd()


def absolute(path: str, folder: str) -> str:
    return os.path.normpath(os.path.join(folder, os.path.expanduser(path)))


def is_remote(path: str) -> bool:
    url = _URL.match(path)
    return url is not None and url[1].lower() != "file"


def refuse_credentials(address: str) -> str:
    if _CREDENTIALS.search(address):
        raise InvalidPipeline(
            "secret-in-file",
            "has a user and password in the URL",
            "remove them from the URL and give `username` and `password` as references,"
            " such as `env:NAME`",
        )
    return address


def _place(path: str, info: ValidationInfo) -> str:
    if not path.strip() or not path.isprintable():
        raise InvalidPipeline("bad-value", f"needs a path, not {shown(path)}")
    refuse_credentials(path)
    return path if _URL.match(path) else absolute(path, folder_of(info))


def _local(path: str) -> str:
    if is_remote(path):
        raise InvalidPipeline(
            "bad-value",
            f"must be a local folder, not {shown(path)}",
            "use a path, or a URL that starts with `file:///`",
        )
    return path


def _file(path: str) -> str:
    if _URL.match(path):
        raise InvalidPipeline("bad-value", f"must be the path of a local file, not {shown(path)}")
    return path


def _as_text(value: object) -> object:
    return os.fspath(value) if isinstance(value, os.PathLike) else value


Place = Annotated[str, AfterValidator(_place), BeforeValidator(_as_text)]
"""A path, made absolute, or a URL, left as it is."""

LocalPlace = Annotated[Place, AfterValidator(_local)]
"""A path or a `file:` URL."""

LocalFile = Annotated[Place, AfterValidator(_file)]
"""The path of a file on this machine."""
