"""A schema in a file, together with the files that it imports."""

from __future__ import annotations

import re
from pathlib import Path

from headgate.schema.registry import MOST_REFERENCES, Kind, RefusedSchema, SchemaText

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
