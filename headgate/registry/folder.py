"""A folder as a registry: `<id>.proto` or `<id>.<subject>.avsc`, one file a schema.

The schemas of a subject are its versions, counted from 1 by their ids. Imports of a .proto file are
looked up in the same folder by their own path.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from pathlib import Path

from headgate.registry.registry import (
    MOST_REFERENCES,
    Kind,
    RefusedSchema,
    SchemaKey,
    SchemaText,
    SubjectVersion,
    UnknownSchema,
)

KINDS: dict[str, Kind] = {".proto": "PROTOBUF", ".avsc": "AVRO"}
"""What a file holds, by the end of its name."""

_IMPORT = re.compile(r'(?:^|;)\s*import\s+(?:public\s+|weak\s+)?"([^"]+)"\s*(?=;)', re.MULTILINE)


def read_schema_file(path: Path) -> SchemaText:
    """Imports of a .proto file are looked up beside it by their own path; raises RefusedSchema."""
    kind = KINDS[path.suffix]
    text = path.read_text("utf-8", "replace")
    references: dict[str, str] = {}
    if kind == "PROTOBUF":
        _collect_imports(path.parent, text, references)
    return SchemaText(kind, text, tuple(references.items()))


def _collect_imports(folder: Path, text: str, found: dict[str, str]) -> None:
    for name in _IMPORT.findall(text):
        if name in found or name.startswith("google/protobuf/"):
            continue
        path = (folder / name).resolve()
        if not path.is_relative_to(folder.resolve()) or not path.is_file():
            raise RefusedSchema(f'import "{name}" is not in the schema folder')
        if len(found) >= MOST_REFERENCES:
            raise RefusedSchema(f"more than {MOST_REFERENCES} imports")
        found[name] = ""
        imported = path.read_text("utf-8", "replace")
        _collect_imports(folder, imported, found)
        del found[name]
        found[name] = imported


class FolderRegistry:
    """Schemas in files: for trying things out, for tests, and for those who keep them in git."""

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
        self._look()
        suffix = next(suffix for suffix, kind in KINDS.items() if kind == schema.kind)
        name = _in_a_file_name(subject)
        for number, path in self._paths.items():
            if path.name == f"{number}.{name}{suffix}" and path.read_text("utf-8") == schema.text:
                return number
        number = max(self._paths, default=0) + 1
        path = self.folder / f"{number}.{name}{suffix}"
        unfinished = path.with_suffix(f".{os.getpid()}.part")
        unfinished.write_text(schema.text, "utf-8")
        os.replace(unfinished, path)
        self._paths[number] = path
        return number

    def close(self) -> None:
        """Nothing is held open."""

    def subjects(self) -> list[str]:
        return sorted(self._versions())

    def newest(self, subject: str) -> SubjectVersion:
        return self._ids(subject)[-1]

    def all_newest(self) -> list[SubjectVersion]:
        return [
            SubjectVersion(subject, len(ids), ids[-1])
            for subject, ids in sorted(self._versions().items())
        ]

    def version(self, subject: str, number: int) -> SubjectVersion:
        versions = self._ids(subject)
        if not 1 <= number <= len(versions):
            message = f"subject {subject} has no version {number} in {self.folder}"
            raise UnknownSchema("schema-unknown", message)
        return versions[number - 1]

    def subjects_of(self, schema_id: int) -> list[str]:
        path = self._path_of(schema_id)
        subject = _subject(path) if path is not None else None
        return [subject] if subject else []

    def _ids(self, subject: str) -> list[SubjectVersion]:
        known = self._versions()
        found = known.get(subject) or known.get(_in_a_file_name(subject))
        if found is None:
            raise UnknownSchema("schema-unknown", f"no subject {subject} in {self.folder}")
        return [SubjectVersion(subject, at, number) for at, number in enumerate(found, start=1)]

    def _versions(self) -> dict[str, list[int]]:
        """The ids of each subject, the oldest first."""
        self._look()
        found: dict[str, list[int]] = defaultdict(list)
        for number, path in sorted(self._paths.items()):
            if subject := _subject(path):
                found[subject].append(number)
        return found

    def _path_of(self, key: SchemaKey) -> Path | None:
        if not isinstance(key, int):
            return None
        if key not in self._paths:
            self._look()
        return self._paths.get(key)

    def _look(self) -> None:
        for path in self.folder.glob("[0-9]*.*"):
            number = path.name.split(".")[0]
            if path.suffix in KINDS and number.isdecimal():
                self._paths[int(number)] = path


def _in_a_file_name(subject: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]", "_", subject)


def _subject(path: Path) -> str | None:
    """`orders.v1` of `12.orders.v1.avsc`; none of `12.avsc`."""
    _, _, subject = path.name.removesuffix(path.suffix).partition(".")
    return subject or None
