"""Files of a workflow in a workspace of Databricks: releases, each in a folder of its own."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from headgate.workflow.databricks.bundle import REQUIREMENTS, folder_of, texts_of
from headgate.workflow.databricks.job import Places
from headgate.workflow.plan import WorkflowPlan
from headgate.workflow.target import Change

if TYPE_CHECKING:
    from databricks.sdk import WorkspaceClient

_RELEASE = "release-"


@dataclass(frozen=True)
class Release:
    """The files that a job reads, in a folder that is named after their content.

    Tasks that run while a newer release is installed keep their own.
    """

    folder: str
    files: Mapping[str, bytes]
    pipeline: str
    """Name of the pipeline file."""
    wheel: str
    """Name of the wheel."""

    @classmethod
    def of(cls, plan: WorkflowPlan, wheel: Path) -> Release:
        files = {name: text.encode() for name, text in texts_of(plan).items()}
        files[wheel.name] = wheel.read_bytes()
        digest = hashlib.sha256()
        for name, content in sorted(files.items()):
            digest.update(f"{name}\0{len(content)}\0".encode() + content)
        folder = f"{folder_of(plan)}/{_RELEASE}{digest.hexdigest()[:16]}"
        return cls(folder, files, Path(plan.file).name, wheel.name)

    def places(self, destinations: Mapping[str, str]) -> Places:
        return Places(
            file=f"{self.folder}/{self.pipeline}",
            wheel=f"{self.folder}/{self.wheel}",
            requirements=f"{self.folder}/{REQUIREMENTS}",
            destinations=destinations,
        )


class WorkspaceFolder:
    """The folder of a workflow in a workspace."""

    def __init__(self, client: WorkspaceClient, path: str) -> None:
        self._client = client
        self._path = path

    def upload(self, release: Release) -> Iterator[Change]:
        """Upload the files of a release that are missing."""
        from databricks.sdk.service.workspace import ImportFormat

        # Paths may come without `/Workspace`.
        inside = f"{release.folder.rpartition('/')[2]}/"
        found = self._list(release.folder, recursive=True)
        known = {path.partition(inside)[2] for path in found or ()}
        for name, content in release.files.items():
            path = f"{release.folder}/{name}"
            if name in known:
                yield Change("file", path, "unchanged")
                continue
            self._client.workspace.mkdirs(path.rpartition("/")[0])
            self._client.workspace.upload(path, content, format=ImportFormat.AUTO, overwrite=True)
            yield Change("file", path)

    def delete(self, keep: Release | None = None) -> Iterator[Change]:
        """Delete all releases but one; without one also the folder, if nothing else is in it."""
        found = self._list(self._path)
        if found is None:
            return
        names = {path.rpartition("/")[2] for path in found}
        releases = sorted(name for name in names if name.startswith(_RELEASE))
        for path in (f"{self._path}/{name}" for name in releases):
            if keep is None or path != keep.folder:
                self._client.workspace.delete(path, recursive=True)
                yield Change("folder", path, "removed")
        if keep is None and names == {*releases}:
            self._client.workspace.delete(self._path)
            yield Change("folder", self._path, "removed")

    def _list(self, folder: str, recursive: bool = False) -> list[str] | None:
        """Return the paths in a folder; None if it does not exist."""
        from databricks.sdk.errors import NotFound

        with suppress(NotFound):
            return [
                one.path or "" for one in self._client.workspace.list(folder, recursive=recursive)
            ]
        return None
