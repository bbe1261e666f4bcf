"""JSON that terminals and readers of lines take as it is."""

from __future__ import annotations

import json

import pytest

from headgate.as_json import json_text
from headgate.cli.output import print_columns, print_json

CONTROLS = [
    *map(chr, range(0x20)),
    *map(chr, range(0x7F, 0xA0)),
    *"\u2028\u2029\u202a\u202e\u2066\u2069\u200e\u200f\ud800",
]


@pytest.mark.parametrize("control", CONTROLS, ids=ascii)
def test_control_characters_are_escaped(control: str, capsys: pytest.CaptureFixture[str]) -> None:
    record = {f"a{control}b": f"c{control}d", "e": float("nan")}
    text = json_text(record)
    assert text.isprintable()
    assert text.splitlines() == [text]
    assert json.loads(text) == {**record, "e": "NaN"}
    print_json(record)
    printed = capsys.readouterr().out
    assert printed.replace("\n", "").isprintable()
    assert json.loads(printed)["data"] == {**record, "e": "NaN"}
    print_columns([f"a{control}b"], [[f"c{control}d"]], right=[f"a{control}b"])
    lines = capsys.readouterr().out.split("\n")
    assert len(lines) == 3
    assert all(line.isprintable() for line in lines)


def test_letters_stay_as_they_are() -> None:
    assert json_text({"ü": "😀 \u00a0"}) == '{"ü": "😀 \u00a0"}'
