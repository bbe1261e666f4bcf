"""A folder as a registry: `<id>.proto` or `<id>.<subject>.avsc`, one file a schema.

Imports of a .proto file are looked up in the same folder by their own path.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from headgate.schema.registry import (
    MOST_REFERENCES,
    Kind,
    RefusedSchema,
    SchemaKey,
    SchemaText,
    UnknownSchema,
)

_KINDS: dict[str, Kind] = {".proto": "PROTOBUF", ".avsc": "AVRO"}
_IMPORT = re.compile(r'^\s*import\s+(?:public\s+|weak\s+)?"([^"]+)"\s*;', re.MULTILINE)


class FolderRegistry:
    """Schemas in files: for trying things out, for tests, and for those who keep them in git."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self._paths: dict[int, Path] = {}

    def fetch(self, key: SchemaKey) -> SchemaText:
        path = self._path_of(key)
        if path is None:
            raise UnknownSchema("schema-unknown", f"no schema {key} in {self.folder}")
        kind = _KINDS[path.suffix]
        text = path.read_text("utf-8", "replace")
        references: dict[str, str] = {}
        if kind == "PROTOBUF":
            self._collect_imports(text, references)
        return SchemaText(kind, text, tuple(references.items()))

    def register(self, subject: str, schema: SchemaText) -> int:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._look()
        suffix = next(suffix for suffix, kind in _KINDS.items() if kind == schema.kind)
        name = re.sub(r"[^A-Za-z0-9_-]", "_", subject)
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

    def _path_of(self, key: SchemaKey) -> Path | None:
        if not isinstance(key, int):
            return None
        if key not in self._paths:
            self._look()
        return self._paths.get(key)

    def _look(self) -> None:
        for path in self.folder.glob("[0-9]*.*"):
            number = path.name.split(".")[0]
            if path.suffix in _KINDS and number.isdecimal():
                self._paths[int(number)] = path

    def _collect_imports(self, text: str, found: dict[str, str]) -> None:
        for name in _IMPORT.findall(text):
            if name in found or name.startswith("google/protobuf/"):
                continue
            path = (self.folder / name).resolve()
            if not path.is_relative_to(self.folder.resolve()) or not path.is_file():
                raise RefusedSchema(f'import "{name}" is not in the schema folder')
            if len(found) >= MOST_REFERENCES:
                raise RefusedSchema(f"more than {MOST_REFERENCES} imports")
            found[name] = ""
            imported = path.read_text("utf-8", "replace")
            self._collect_imports(imported, found)
            del found[name]
            found[name] = imported
