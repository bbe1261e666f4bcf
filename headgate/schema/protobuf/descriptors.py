"""From what a registry holds of a protobuf schema to compiled descriptors.

A registry holds text; some clients register the compiled file in base64 instead.
"""

from __future__ import annotations

import base64
import binascii
from collections import Counter
from pathlib import PurePosixPath
from typing import Any

from headgate.schema.protobuf.compile_proto import compile_proto
from headgate.schema.registry import RefusedSchema, SchemaText

_ROOT = "__root__.proto"
_WELL_KNOWN = "google/protobuf/"


def descriptors(schema: SchemaText) -> Any:
    """The FileDescriptorSet of a schema and all it imports, the schema itself last."""
    for name, _ in schema.references:
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or name == _ROOT or "\0" in name:
            raise RefusedSchema(f"a reference is called {name!r}")
    # The compiler has those of protobuf itself, and ptars knows them by name alone.
    references = {
        name: text for name, text in schema.references if not name.startswith(_WELL_KNOWN)
    }
    root = _compiled_already(schema.text)
    if root is None:
        return compile_proto({**references, _ROOT: schema.text}, _ROOT)
    return _with_imports(root, references)


def for_reading(files: Any) -> Any:
    """The same files without what stands in the way of reading.

    Names such as `foo_bar` and `fooBar` are no trouble outside of JSON, but protobuf refuses two
    fields of one name in JSON. Extensions have no columns: they shall be unknown fields.
    """
    from google.protobuf.descriptor_pb2 import FileDescriptorSet

    readable = FileDescriptorSet.FromString(files.SerializeToString())
    for file in readable.file:
        del file.extension[:]
        for message in file.message_type:
            _make_readable(message)
    return readable


def pool_of(files: bytes) -> Any:
    """A pool of these files alone, from a FileDescriptorSet as bytes."""
    from google.protobuf.descriptor_pb2 import FileDescriptorSet
    from google.protobuf.descriptor_pool import DescriptorPool

    pool = DescriptorPool()
    for file in FileDescriptorSet.FromString(files).file:
        pool.Add(file)
    return pool


def _make_readable(message: Any) -> None:
    del message.extension[:]
    times = Counter(field.json_name for field in message.field)
    for field in message.field:
        if field.json_name and times[field.json_name] > 1:
            field.json_name = f"#{field.number}"
    for inside in message.nested_type:
        _make_readable(inside)


def _compiled_already(text: str) -> Any | None:
    """A FileDescriptorProto in base64, or None for ordinary text."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.message import DecodeError

    try:
        return FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError, DecodeError):
        return None


def _with_imports(root: Any, references: dict[str, str]) -> Any:
    from google.protobuf.descriptor_pb2 import FileDescriptorSet

    files: dict[str, Any] = {}

    def add(file: Any) -> None:
        for name in file.dependency:
            if name in files:
                continue
            compiled = _compiled_already(references.get(name, ""))
            if name in references and compiled is not None:
                compiled.name = name
                files[name] = None
                add(compiled)
            else:
                files.update((one.name, one) for one in _compile(name, references).file)
        files.pop(file.name, None)
        files[file.name] = file

    add(root)
    return FileDescriptorSet(file=[file for file in files.values() if file is not None])


def _compile(name: str, references: dict[str, str]) -> Any:
    """A file that is there as text, or one of protobuf's own."""
    texts = {each: text for each, text in references.items() if not _compiled_already(text)}
    if name in texts:
        return compile_proto(texts, name)
    compiled = compile_proto({_ROOT: f'syntax = "proto3"; import "{name}";'}, _ROOT)
    del compiled.file[-1]
    return compiled
