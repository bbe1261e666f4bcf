"""A registry in a folder, with a file per schema: `<id>.proto` or `<id>.<subject>.avsc`.

The versions of a subject are its schemas by ascending id, numbered from 1. Imports in a .proto file
are resolved in the same folder.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from contextlib import suppress
from pathlib import Path

from headgate.registry.registry import (
    MAX_REFERENCES,
    RefusedSchema,
    SchemaKey,
    SchemaText,
    SchemaType,
    SubjectVersion,
    UnknownSchema,
)

SCHEMA_TYPES: dict[str, SchemaType] = {".proto": "PROTOBUF", ".avsc": "AVRO"}
"""Schema types by file extension."""

_IMPORT = re.compile(r'(?:^|;)\s*import\s+(?:public\s+|weak\s+)?"([^"]+)"\s*(?=;)', re.MULTILINE)


def read_schema_file(path: Path) -> SchemaText:
    """Read a schema and the files that it imports; raise RefusedSchema if one is missing."""
    schema_type = SCHEMA_TYPES[path.suffix]
    text = path.read_text("utf-8", "replace")
    references: dict[str, str] = {}
    if schema_type == "PROTOBUF":
        _collect_imports(path.parent, text, references)
    return SchemaText(schema_type, text, tuple(references.items()))


def _collect_imports(folder: Path, text: str, imports: dict[str, str]) -> None:
    for name in _IMPORT.findall(text):
        if name in imports or name.startswith("google/protobuf/"):
            continue
        path = (folder / name).resolve()
        if not path.is_relative_to(folder.resolve()) or not path.is_file():
            raise RefusedSchema(f'import "{name}" is not in the schema folder')
        if len(imports) >= MAX_REFERENCES:
            raise RefusedSchema(f"more than {MAX_REFERENCES} imports")
        imports[name] = ""  # Breaks cycles.
        imported = path.read_text("utf-8", "replace")
        _collect_imports(folder, imported, imports)
        del imports[name]  # To insert it again after its own imports.
        imports[name] = imported


class FolderRegistry:
    """Schemas in files: for trials, tests, and schemas that are kept in git."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self._paths: dict[int, Path] = {}

    def fetch(self, key: SchemaKey) -> SchemaText:
        path = self._path_of(key)
        if path is None:
            raise UnknownSchema("schema-unknown", f"no schema {key} in {self.folder}")
        return read_schema_file(path)

    def register(self, subject: str, schema: SchemaText) -> int:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._scan()
        suffix = next(
            suffix for suffix, known in SCHEMA_TYPES.items() if known == schema.schema_type
        )
        name = _file_name(subject)
        for number, path in self._paths.items():
            if path.name == f"{number}.{name}{suffix}" and path.read_text("utf-8") == schema.text:
                return number
        number = max(self._paths, default=0) + 1
        path = self.folder / f"{number}.{name}{suffix}"
        temporary = path.with_suffix(f".{os.getpid()}.part")
        temporary.write_text(schema.text, "utf-8")
        os.replace(temporary, path)
        self._paths[number] = path
        return number

    def close(self) -> None:
        """Do nothing: no file is held open."""

    def subjects(self) -> list[str]:
        return sorted(self._versions())

    def latest(self, subject: str) -> SubjectVersion:
        return self._subject_versions(subject)[-1]

    def latest_versions(self) -> list[SubjectVersion]:
        return [
            SubjectVersion(subject, len(ids), ids[-1])
            for subject, ids in sorted(self._versions().items())
        ]

    def version(self, subject: str, number: int) -> SubjectVersion:
        versions = self._subject_versions(subject)
        if not 1 <= number <= len(versions):
            message = f"subject {subject} has no version {number} in {self.folder}"
            raise UnknownSchema("schema-unknown", message)
        return versions[number - 1]

    def delete(self, subject: str) -> None:
        with suppress(UnknownSchema):
            for one in self._subject_versions(subject):
                path = self._path_of(one.schema_id)
                if path is not None:
                    path.unlink(missing_ok=True)
                    del self._paths[one.schema_id]

    def subjects_of(self, schema_id: int) -> list[str]:
        path = self._path_of(schema_id)
        subject = _subject(path) if path is not None else None
        return [subject] if subject else []

    def _subject_versions(self, subject: str) -> list[SubjectVersion]:
        versions = self._versions()
        ids = versions.get(subject) or versions.get(_file_name(subject))
        if ids is None:
            raise UnknownSchema("schema-unknown", f"no subject {subject} in {self.folder}")
        return [SubjectVersion(subject, index, number) for index, number in enumerate(ids, start=1)]

    def _versions(self) -> dict[str, list[int]]:
        """Return the ids of each subject, oldest first."""
        self._scan()
        versions: dict[str, list[int]] = defaultdict(list)
        for number, path in sorted(self._paths.items()):
            if subject := _subject(path):
                versions[subject].append(number)
        return versions

    def _path_of(self, key: SchemaKey) -> Path | None:
        if not isinstance(key, int):
            return None
        if key not in self._paths:
            self._scan()
        return self._paths.get(key)

    def _scan(self) -> None:
        for path in self.folder.glob("[0-9]*.*"):
            number = path.name.split(".")[0]
            if path.suffix in SCHEMA_TYPES and number.isdecimal():
                self._paths[int(number)] = path


def _file_name(subject: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]", "_", subject)


def _subject(path: Path) -> str | None:
    """Return `orders.v1` for `12.orders.v1.avsc`; None for `12.avsc`."""
    _, _, subject = path.name.removesuffix(path.suffix).partition(".")
    return subject or None
