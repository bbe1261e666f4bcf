from __future__ import annotations

from pathlib import Path

from headgate.sources.checkpoint import Checkpoint

METADATA = '{"id":"5e0a-mine"}'
OFFSETS = 'v1\n{"batchWatermarkMs":0}\n{"games":{"0":10}}'
FIRST = 'v1\n{"games":{"0":0}}'


def checkpoint(folder: Path, files: dict[str, str]) -> Checkpoint:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Checkpoint(str(folder))


def test_missing_folder_has_no_state(tmp_path: Path) -> None:
    empty = Checkpoint(str(tmp_path / "nowhere"))
    assert (empty.query_id, empty.last_begun, empty.last_committed) == (None, None, None)
    assert (empty.offsets(0), empty.start_of(0), empty.start_of(3)) == (None, None, None)


def test_checkpoint_has_its_id_and_the_last_batch(tmp_path: Path) -> None:
    found = checkpoint(
        tmp_path,
        {
            "metadata": METADATA,
            "sources/0/0": FIRST,
            "offsets/9": OFFSETS,
            "offsets/10": OFFSETS.replace("10", "20"),
            "offsets/.10.crc": "",
            "commits/9": "v1\n{}",
            "commits/.9.crc.tmp": "",
        },
    )
    assert (found.query_id, found.last_begun, found.last_committed) == ("5e0a-mine", 10, 9)


def test_checkpoint_is_set_aside_under_its_id(tmp_path: Path) -> None:
    found = checkpoint(tmp_path / "games", {"metadata": METADATA, "commits/0": "v1"})
    found.set_aside()
    assert [path.name for path in tmp_path.iterdir()] == ["games.5e0a-mine"]
    assert (found.query_id, found.last_committed) == (None, None)
    found.set_aside()


def test_batch_begins_where_the_one_before_ends(tmp_path: Path) -> None:
    found = checkpoint(tmp_path, {"sources/0/0": FIRST, "offsets/0": OFFSETS})
    assert found.start_of(0) == {"games": {"0": 0}}
    assert found.offsets(0) == found.start_of(1) == {"games": {"0": 10}}


def test_broken_files_are_ignored(tmp_path: Path) -> None:
    found = checkpoint(tmp_path, {"metadata": "{", "offsets/0": "v1", "sources/0/0": "v1"})
    assert (found.query_id, found.offsets(0), found.start_of(0)) == (None, None, None)
