"""Removes the change files that an earlier simulation wrote, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from headgate.cli.amounts import counted
from headgate.simulate.shop.datastream_files import FILE_NAME


def clean_up_shop(landing: Path) -> Iterator[str]:
    """Remove the files and the folders that are empty without them; says what was removed."""
    found = [
        path
        for path in landing.glob("shop_*/**/*")
        if FILE_NAME.fullmatch(path.name.removeprefix("."))
    ]
    for path in found:
        path.unlink()
    folders = {folder for path in found for folder in path.parents if landing in folder.parents}
    for folder in sorted(folders, key=lambda each: -len(each.parts)):
        if not any(folder.iterdir()):
            folder.rmdir()
    if found:
        yield f"{counted(len(found), 'file')} in {landing}"
