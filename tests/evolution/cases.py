"""The cases of docs/evolution/cases.yaml: schemas, records, and what shall become of them."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

import fastavro
import yaml
from google.protobuf import json_format

from headgate.config import Mode
from headgate.formats.protobuf import ProtobufDecoder
from headgate.registry.registry import SchemaText
from headgate.schema.changes import Outcome, change_types

Format = Literal["protobuf", "avro"]
FORMATS: tuple[Format, ...] = ("protobuf", "avro")
_FILE = Path(__file__).parents[2] / "docs" / "evolution" / "cases.yaml"
_STRICT = {
    Mode.FREEZE: Outcome.REFUSED,
    Mode.DISCARD_ROW: Outcome.QUARANTINED,
    Mode.DISCARD_VALUE: Outcome.DISCARDED,
}


@dataclass(frozen=True)
class Case:
    """One kind of change in one format."""

    number: int
    change: str
    format: Format
    said: Mapping[str, Any]

    @property
    def route(self) -> str:
        return f"{self.format}_{self.number}"

    @property
    def asks(self) -> list[str]:
        return list(self.said["asks"])

    @property
    def before(self) -> SchemaText | None:
        return self._text("before") if "before" in self.said else None

    @property
    def after(self) -> SchemaText:
        return self._text("after")

    def payload(self, which: Literal["old", "new"]) -> bytes:
        text = self._text("before" if which == "old" else "after")
        if self.format == "protobuf":
            message = ProtobufDecoder.compile(text, (0,)).message()
            json_format.ParseDict(self.said[which], message)
            return bytes(message.SerializeToString())
        schema = json.loads(text.text)
        record = {
            field["name"]: _written(self.said[which][field["name"]], field["type"])
            for field in schema["fields"]
        }
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), record)
        return stream.getvalue()

    def outcomes(self, mode: Mode) -> set[tuple[str, Outcome]]:
        """What the ledger shall tell, by kind of change."""
        asked = {(name, _outcome(name, mode)) for name in self.asks}
        withheld = {one for one in asked if one[1] in _STRICT.values()}
        # What asks nothing of the table is only worth telling where records land.
        return withheld if withheld and self.lands(mode) is None else asked

    def lands(self, mode: Mode) -> Mapping[str, Any] | None:
        """The new row, None where it shall be in quarantine."""
        outcomes = {_outcome(name, mode) for name in self.asks}
        if Outcome.REFUSED in outcomes or ("CreateTable" in self.asks and mode in _STRICT):
            return None
        if Outcome.QUARANTINED in outcomes and self.said.get("carries", True):
            return None
        if outcomes & {Outcome.DISCARDED, Outcome.QUARANTINED}:
            return dict(self.said.get("without", self.said["lands"]))
        return dict(self.said["lands"])

    def _text(self, which: str) -> SchemaText:
        if self.format == "protobuf":
            imports = 'import "google/protobuf/timestamp.proto"; '
            head = f'syntax = "{self.said.get("syntax", "proto3")}"; '
            body = self.said[which]
            known = imports if "google.protobuf" in body else ""
            return SchemaText("PROTOBUF", f"{head}{known}message event {{ {body} }}")
        extra = self.said.get("defaults", {}) if which == "after" else {}
        fields = [
            {"name": name, "type": kind, **({"default": extra[name]} if name in extra else {})}
            for name, kind in self.said[which].items()
        ]
        record: dict[str, Any] = {"type": "record", "name": "event", "fields": fields}
        if which == "after" and "doc" in self.said:
            record["doc"] = self.said["doc"]
        return SchemaText("AVRO", json.dumps(record))


def _outcome(name: str, mode: Mode) -> Outcome:
    kind = next(one for one in change_types() if one.__name__ == name)
    return _STRICT.get(mode, kind.outcome) if kind.decided_by else Outcome.APPLIED


def _written(value: Any, kind: Any) -> Any:
    decimal = isinstance(kind, dict) and kind.get("logicalType") == "decimal"
    return Decimal(value) if decimal else value


def cases() -> list[Case]:
    said = yaml.safe_load(_FILE.read_text())
    shared = ("asks", "lands", "without", "carries")
    return [
        Case(
            number,
            one["change"],
            form,
            {**{key: one[key] for key in shared if key in one}, **one[form]},
        )
        for form in FORMATS
        for number, one in enumerate(said)
    ]
