"""Descriptors of a schema: compiled in process, and the message that payloads are."""

from __future__ import annotations

import base64
import binascii
import os
import re
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

from headgate.formats.decoder import MessageChoice
from headgate.registry.registry import RefusedSchema, SchemaText

_MAX_NESTING = 64
_COMMENT_OR_STRING = re.compile(
    r"""//[^\n]*|/\*.*?(?:\*/|\Z)|"(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])*'?""", re.DOTALL
)
"""What is not closed ends with the text or the line: looking for its end again from every later
beginning would take quadratic time."""
_COMMENT_STRING_OR_MESSAGE = re.compile(
    rf"{_COMMENT_OR_STRING.pattern}|(?P<message>\bmessage\s+\w+\s*{{)", re.DOTALL
)
_JSON_CONFLICT = re.compile(r"JSON name of field .* conflicts with")
_ALLOW_CONFLICTS = " option deprecated_legacy_json_field_conflicts = true;"
_LOG_LINE = re.compile(r"WARNING: All log messages|[IWEF]\d{4} \d\d:\d\d:")
_compiler_lock = threading.Lock()


def compile_proto(files: Mapping[str, str], root: str) -> Any:
    """Compile `root` and all it imports to a FileDescriptorSet, the root last."""
    try:
        return _compile(files, root)
    except RefusedSchema as refusal:
        if not _JSON_CONFLICT.search(str(refusal)):
            raise
        return _compile({name: _allow_conflicts(text) for name, text in files.items()}, root)


def _allow_conflicts(text: str) -> str:
    """Allow fields that share a name in JSON: registries do, the compiler does not."""
    return _COMMENT_STRING_OR_MESSAGE.sub(
        lambda found: found[0] + _ALLOW_CONFLICTS if found["message"] else found[0], text
    )


def _compile(files: Mapping[str, str], root: str) -> Any:
    import grpc_tools
    from google.protobuf.descriptor_pb2 import FileDescriptorSet
    from grpc_tools import protoc

    for name, text in files.items():
        _check_nesting(name, text)
    well_known = Path(grpc_tools.__file__).parent / "_proto"
    with tempfile.TemporaryDirectory(prefix="headgate-proto-") as folder:
        for name, text in files.items():
            path = Path(folder, "in", name)
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, "utf-8")
            except (OSError, UnicodeError) as error:
                raise RefusedSchema(f"{name!r} cannot be compiled: {error}"[:500]) from None
        compiled, output = Path(folder, "out"), Path(folder, "output")
        arguments = [
            "protoc",
            f"-I{folder}/in",
            f"-I{well_known}",
            "--include_imports",
            f"--descriptor_set_out={compiled}",
            root,
        ]
        with _compiler_lock, _CapturedStderr(output):
            failed = protoc.main(arguments)
        if failed:
            errors = output.read_text("utf-8", "replace").replace(f"{folder}/in/", "")
            lines = [line for line in errors.splitlines() if not _LOG_LINE.match(line)]
            raise RefusedSchema("\n".join(lines)[:500])
        return FileDescriptorSet.FromString(compiled.read_bytes())


def _check_nesting(name: str, text: str) -> None:
    """Refuse deep nesting: the compiler recurses, and a stack overflow ends the process."""
    depth = 0
    for bracket in re.findall("[{}<>]", _COMMENT_OR_STRING.sub(" ", text)):
        depth += 1 if bracket in "{<" else -1
        if depth > _MAX_NESTING:
            raise RefusedSchema(f"{name} nests deeper than {_MAX_NESTING}")


class _CapturedStderr:
    """Redirects file descriptor 2, to which the compiler writes, to a file."""

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


_ROOT = "__root__.proto"
_WELL_KNOWN = "google/protobuf/"


def descriptors(schema: SchemaText) -> Any:
    """Compile a schema and all it imports to a FileDescriptorSet, the schema itself last."""
    for name, _ in schema.references:
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or name == _ROOT or "\0" in name:
            raise RefusedSchema(f"a reference is called {name!r}")
    # The compiler has its own copies of these, and a schema must not replace them.
    references = {
        name: text for name, text in schema.references if not name.startswith(_WELL_KNOWN)
    }
    root = _parse_descriptor(schema.text)
    if root is None:
        return compile_proto({**references, _ROOT: schema.text}, _ROOT)
    return _with_imports(root, references)


def without_conflicts(files: Any) -> Any:
    """Return the files without names that conflict in JSON, and without extensions.

    python-protobuf rejects two fields with one name in JSON, such as `foo_bar` and `fooBar`.
    Extensions have no columns and are treated as unknown fields.
    """
    from google.protobuf.descriptor_pb2 import FileDescriptorSet

    copied = FileDescriptorSet.FromString(files.SerializeToString())
    for file in copied.file:
        del file.extension[:]
        for message in file.message_type:
            _remove_conflicts(message)
    return copied


def pool_of(files: bytes) -> Any:
    """Return a pool of only these files, given as a serialized FileDescriptorSet."""
    from google.protobuf.descriptor_pb2 import FileDescriptorSet
    from google.protobuf.descriptor_pool import DescriptorPool

    pool = DescriptorPool()
    for file in FileDescriptorSet.FromString(files).file:
        pool.Add(file)
    return pool


def _remove_conflicts(message: Any) -> None:
    del message.extension[:]
    times = Counter(field.json_name for field in message.field)
    for field in message.field:
        if field.json_name and times[field.json_name] > 1:
            field.json_name = f"#{field.number}"
    for inside in message.nested_type:
        _remove_conflicts(inside)


def _parse_descriptor(text: str) -> Any | None:
    """Parse a FileDescriptorProto in base64; None for ordinary text."""
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
            compiled = _parse_descriptor(references.get(name, ""))
            if name in references and compiled is not None:
                compiled.name = name
                files[name] = None
                add(compiled)
            else:
                files.update((one.name, one) for one in _compile_schema(name, references).file)
        files.pop(file.name, None)
        files[file.name] = file

    add(root)
    return FileDescriptorSet(file=[file for file in files.values() if file is not None])


def _compile_schema(name: str, references: dict[str, str]) -> Any:
    """Compile a file that is given as text, or one of protobuf's own."""
    texts = {each: text for each, text in references.items() if not _parse_descriptor(text)}
    if name in texts:
        return compile_proto(texts, name)
    compiled = compile_proto({_ROOT: f'syntax = "proto3"; import "{name}";'}, _ROOT)
    del compiled.file[-1]
    return compiled


_FILE = "headgate: plain"
_PACKAGE = "headgate__plain"
_PLAIN = {f".google.protobuf.{name}": f".{_PACKAGE}.{name}" for name in ("Any", "FieldMask")}


class JsonClasses:
    """Message classes for JSON text, made on first use.

    In them `Any` and `FieldMask` are ordinary messages, without a JSON form of their own.
    """

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
    """Yield every field of a file or a message, those of nested messages included."""
    messages = scope.message_type if hasattr(scope, "message_type") else scope.nested_type
    yield from scope.extension
    if not hasattr(scope, "message_type"):
        yield from scope.field
    for message in messages:
        yield from _fields(message)


class NoSuchMessage(Exception):
    """The schema has no message at that index or of that name."""


class AmbiguousMessage(Exception):
    """The schema has several messages, and it is not clear which of them the payloads are."""


_MAX_NAMES = 10


def choose_message(files: Any, message: MessageChoice) -> str:
    """Return the full name of a message in the last file of a compiled FileDescriptorSet."""
    if isinstance(message, tuple):
        return _message_at(files.file[-1], message)
    return _root_message(files) if message is None else _message_named(files, message)


def find_message(pool: Any, name: str) -> Any:
    """Return the descriptor of the message with that full name."""
    try:
        return pool.FindMessageTypeByName(name)
    except KeyError:
        raise NoSuchMessage(f"the schema has no message {name}") from None


def _message_at(file: Any, indexes: tuple[int, ...]) -> str:
    names = [file.package] if file.package else []
    level = file.message_type
    for index in indexes:
        if not 0 <= index < len(level):
            raise NoSuchMessage(f"the schema has no message at index {list(indexes)}")
        names.append(level[index].name)
        level = level[index].nested_type
    return ".".join(names)


def _message_named(files: Any, wanted: str) -> str:
    """Prefer the full name; a name without package is looked for in the schema's own file."""
    own = files.file[-1]
    known = {name for file in files.file for name in _message_names(file)}
    for name in (wanted, _full_name(own.package, wanted)):
        if name in known:
            return name
    has = _listed(_message_names(own)) or "none"
    raise NoSuchMessage(f"the schema has no message {wanted}; its messages: {has}")


def _root_message(files: Any) -> str:
    """Return the only top-level message of the file that no other message has as a field.

    Nested definitions belong to the top-level message around them, so that a message that contains
    itself by way of those is still a root.
    """
    file = files.file[-1]
    names = [_full_name(file.package, one.name) for one in file.message_type]
    if len(names) == 1:
        return names[0]
    if not names:
        raise NoSuchMessage("the schema has no message")
    try:
        pool = pool_of(without_conflicts(files).SerializeToString())
    except TypeError as error:  # a registered descriptor that no compiler has seen
        raise RefusedSchema(f"the schema cannot be compiled: {error}"[:500]) from None
    contained = set(_extension_types(file))
    for name in names:
        contained |= set(_field_types(find_message(pool, name))) - {name}
    roots = [name for name in names if name not in contained]
    if len(roots) == 1:
        return roots[0]
    if roots:
        raise AmbiguousMessage(f"the payload can be any of the messages {_listed(roots)}")
    raise AmbiguousMessage(
        f"the payload can be any of the messages {_listed(names)}: each is a field of another"
    )


def _field_types(descriptor: Any) -> Iterator[str]:
    """Yield the full names of message types of fields, those of nested messages included."""
    for one in descriptor.fields:
        if one.message_type is not None:
            yield one.message_type.full_name
    for nested in descriptor.nested_types:
        yield from _field_types(nested)


def _extension_types(scope: Any) -> Iterator[str]:
    """Yield the full names of message types of extensions, unless they extend themselves."""
    is_file = hasattr(scope, "message_type")
    for one in scope.extension:
        if one.type_name and one.type_name != one.extendee:
            yield one.type_name.removeprefix(".")
    for message in scope.message_type if is_file else scope.nested_type:
        yield from _extension_types(message)


def _message_names(file: Any) -> list[str]:
    """Return the full names of all messages of a file, nested ones included."""
    found: list[str] = []

    def add(messages: Any, scope: str) -> None:
        for message in messages:
            if not message.options.map_entry:
                found.append(_full_name(scope, message.name))
                add(message.nested_type, found[-1])

    add(file.message_type, file.package)
    return found


def _full_name(scope: str, name: str) -> str:
    return f"{scope}.{name}" if scope else name


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _MAX_NAMES
    return ", ".join(names[:_MAX_NAMES]) + (f" and {more} more" if more > 0 else "")
