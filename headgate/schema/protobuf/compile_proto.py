"""The protobuf compiler, in process."""

from __future__ import annotations

import os
import re
import sys
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headgate.schema.registry import RefusedSchema

_DEEPEST_NESTING = 64
_COMMENT_OR_STRING = re.compile(
    r"""//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'""", re.DOTALL
)
_COMMENT_STRING_OR_MESSAGE = re.compile(
    rf"{_COMMENT_OR_STRING.pattern}|(?P<message>\bmessage\s+\w+\s*{{)", re.DOTALL
)
_JSON_CONFLICT = re.compile(r"JSON name of field .* conflicts with")
_ALLOW_CONFLICTS = " option deprecated_legacy_json_field_conflicts = true;"
_LOG_LINE = re.compile(r"WARNING: All log messages|[IWEF]\d{4} \d\d:\d\d:")
_one_at_a_time = threading.Lock()


def compile_proto(files: Mapping[str, str], root: str) -> Any:
    """The FileDescriptorSet of `root` and all it imports, the root last."""
    try:
        return _compile(files, root)
    except RefusedSchema as refusal:
        if not _JSON_CONFLICT.search(str(refusal)):
            raise
        return _compile({name: _allow_conflicts(text) for name, text in files.items()}, root)


def _allow_conflicts(text: str) -> str:
    """Let fields have one name in JSON: an error to the compiler, but not to registries."""
    return _COMMENT_STRING_OR_MESSAGE.sub(
        lambda found: found[0] + _ALLOW_CONFLICTS if found["message"] else found[0], text
    )


def _compile(files: Mapping[str, str], root: str) -> Any:
    import grpc_tools
    from google.protobuf.descriptor_pb2 import FileDescriptorSet
    from grpc_tools import protoc

    for name, text in files.items():
        _refuse_depth(name, text)
    well_known = Path(grpc_tools.__file__).parent / "_proto"
    with tempfile.TemporaryDirectory(prefix="headgate-proto-") as folder:
        for name, text in files.items():
            path = Path(folder, "in", name)
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, "utf-8")
            except (OSError, UnicodeError) as error:
                raise RefusedSchema(f"{name!r} cannot be compiled: {error}"[:500]) from None
        compiled, complaints = Path(folder, "out"), Path(folder, "complaints")
        arguments = [
            "protoc",
            f"-I{folder}/in",
            f"-I{well_known}",
            "--include_imports",
            f"--descriptor_set_out={compiled}",
            root,
        ]
        with _one_at_a_time, _StandardErrorIn(complaints):
            failed = protoc.main(arguments)
        if failed:
            said = complaints.read_text("utf-8", "replace").replace(f"{folder}/in/", "")
            lines = [line for line in said.splitlines() if not _LOG_LINE.match(line)]
            raise RefusedSchema("\n".join(lines)[:500])
        return FileDescriptorSet.FromString(compiled.read_bytes())


def _refuse_depth(name: str, text: str) -> None:
    """The compiler recurses on brackets, and a stack overflow takes the whole process."""
    depth = 0
    for bracket in re.findall("[{}<>]", _COMMENT_OR_STRING.sub(" ", text)):
        depth += 1 if bracket in "{<" else -1
        if depth > _DEEPEST_NESTING:
            raise RefusedSchema(f"{name} nests deeper than {_DEEPEST_NESTING}")


class _StandardErrorIn:
    """The compiler writes to file descriptor 2, whatever Python thinks of sys.stderr."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        sys.stderr.flush()
        self._kept = os.dup(2)
        target = os.open(self._path, os.O_WRONLY | os.O_CREAT)
        os.dup2(target, 2)
        os.close(target)

    def __exit__(self, *_: object) -> None:
        os.dup2(self._kept, 2)
        os.close(self._kept)
