"""Message classes whose JSON says everything.

Protobuf's printer looks into an Any only where it knows the type inside, and refuses a FieldMask
whose paths are no field names: here both are ordinary messages, as they are in columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

_FILE = "headgate: plain"
_PACKAGE = "headgate__plain"
_PLAIN = {f".google.protobuf.{name}": f".{_PACKAGE}.{name}" for name in ("Any", "FieldMask")}


class PlainClasses:
    """The classes of a compiled FileDescriptorSet, made when the first one is wanted."""

    def __init__(self, files: Any) -> None:
        self._files = files

    def __call__(self, name: str) -> Any:
        from google.protobuf.message_factory import GetMessageClass

        return GetMessageClass(self._pool.FindMessageTypeByName(name))

    @cached_property
    def _pool(self) -> Any:
        from google.protobuf.descriptor_pb2 import FileDescriptorSet
        from google.protobuf.descriptor_pool import DescriptorPool

        copied = FileDescriptorSet.FromString(self._files.SerializeToString())
        pool = DescriptorPool()
        pool.Add(_plain_file())
        for file in copied.file:
            for field in _fields(file):
                if field.type_name in _PLAIN:
                    field.type_name = _PLAIN[field.type_name]
            file.dependency.append(_FILE)
            pool.Add(file)
        return pool


def _plain_file() -> Any:
    from google.protobuf import any_pb2, field_mask_pb2
    from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto

    file = FileDescriptorProto(name=_FILE, package=_PACKAGE, syntax="proto3")
    for message in (any_pb2.Any, field_mask_pb2.FieldMask):
        copied = DescriptorProto()
        message.DESCRIPTOR.CopyToProto(copied)
        file.message_type.append(copied)
    return file


def _fields(scope: Any) -> Iterator[Any]:
    """Every field of a file or a message, with those of the messages inside."""
    messages = scope.message_type if hasattr(scope, "message_type") else scope.nested_type
    yield from scope.extension
    if not hasattr(scope, "message_type"):
        yield from scope.field
    for message in messages:
        yield from _fields(message)
