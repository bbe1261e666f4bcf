from __future__ import annotations

from pathlib import Path

from headgate.examples import find_example
from headgate.inspect.check import find_mistakes


def test_a_good_pipeline_has_no_mistakes(tmp_path: Path) -> None:
    assert find_mistakes(_write(tmp_path, find_example("games-embedded").text())) == []


def test_mistakes_of_the_file_come_before_those_of_its_proto(tmp_path: Path) -> None:
    text = find_example("games-embedded").text().replace("lake:", "lak:")
    assert [each.code for each in find_mistakes(_write(tmp_path, text))] == ["unknown-key"]


def test_a_proto_without_the_field_is_a_mistake_at_its_line(tmp_path: Path) -> None:
    (tmp_path / "wrapper.proto").write_text(
        'syntax = "proto3"; message wrapper { string game_name = 1; bytes payload = 3; }'
    )
    text = find_example("games-embedded").text().replace("# proto:", "proto:")
    path = _write(tmp_path, text)
    (mistake,) = find_mistakes(path)
    assert mistake.code == "bad-proto"
    assert "schema_id" in mistake.message
    assert mistake.line is not None
    assert "proto: ./wrapper.proto" in path.read_text().splitlines()[mistake.line - 1]


def _write(folder: Path, text: str) -> Path:
    path = folder / "games.yaml"
    path.write_text(text, "utf-8")
    return path
