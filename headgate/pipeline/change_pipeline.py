"""All that the file of a database's change files says."""

from __future__ import annotations

import os
from collections.abc import Mapping
from itertools import combinations
from typing import ClassVar, Self

from pydantic import Field, model_validator

from headgate.pipeline.any_pipeline import AnyPipeline
from headgate.pipeline.change_template import ChangeTemplate, around
from headgate.pipeline.envelope import ChangeEnvelope
from headgate.pipeline.finding import InvalidPipeline
from headgate.pipeline.merge import Merge
from headgate.pipeline.place import is_remote
from headgate.pipeline.refused_at import refused_at
from headgate.pipeline.size import Size
from headgate.pipeline.source import ChangeSource
from headgate.pipeline.wording import shown

FILES_TABLE = "_files"
"""The table of files that were read; no template gives a name with `_` in front."""

_OTHER_WORDS = {
    "change_log": "log_{database}_{table}",
    "merged": "now_{database}_{table}",
    "history": "history_{database}_{table}",
}


class ChangePipeline(AnyPipeline):
    """Change files of a database in; out, for each of its tables, all changes and the rows.

        ChangePipeline(
            name="shop",
            source=Files(path="./landing"),
            envelope=Datastream(),
            lake="./lake",
            history="history_{database}_{table}",
        )

    `load_pipeline` reads the same from a file.
    """

    gold_source: ClassVar[str] = "merged"

    source: ChangeSource = Field(examples=[{"files": {"path": "./landing"}}])
    """Where change files are."""

    envelope: ChangeEnvelope = Field(examples=["datastream"])
    """How a change file is opened."""

    change_log: ChangeTemplate = "log_{database}_{table}"
    """The tables of all changes, one for each table of the source."""

    merged: ChangeTemplate | None = "{database}_{table}"
    """The tables of rows as they are now; `null` for none."""

    history: ChangeTemplate | None = None
    """The tables of rows as they were at each time, if they are wanted."""

    merge: Merge = Merge()
    """How changes become rows."""

    max_file_bytes: Size = Size.parse("1 GB")
    """The largest file; larger ones go to the quarantine."""

    @property
    def own_tables(self) -> Mapping[str, str]:
        return {**super().own_tables, "files": FILES_TABLE}

    @property
    def templates(self) -> Mapping[str, str]:
        given = {"change_log": self.change_log, "merged": self.merged, "history": self.history}
        return {key: template for key, template in given.items() if template}

    @model_validator(mode="after")
    def _each_kind_of_table_has_its_own_names(self) -> Self:
        """What stands around the placeholders tells the kinds apart."""
        templates = self.templates
        for (one, first), (other, second) in combinations(templates.items(), 2):
            if around(first) == around(second):
                # Said of the one that stands in the file; the other may be there by default.
                given, taken = (other, one) if other in self.model_fields_set else (one, other)
                error = InvalidPipeline(
                    "bad-template",
                    f"gives names that `{taken}` gives: {shown(templates[taken])}",
                    f"put something before or after it: `{_OTHER_WORDS[given]}`",
                )
                raise refused_at({given: error})
        return self

    @model_validator(mode="after")
    def _does_not_read_what_it_writes(self) -> Self:
        lake, landing = _local(self.lake), _local(self.source.path)
        if lake and landing and os.path.commonpath([lake, landing]) == landing:
            message = f"is inside `source.files.path`: {shown(self.source.path)}"
            hint = "its own tables would be read as change files"
            raise refused_at({"lake": InvalidPipeline("bad-value", message, hint)})
        return self

    @model_validator(mode="after")
    def _merges_into_something(self) -> Self:
        if "merge" in self.model_fields_set and self.merged is None and self.history is None:
            message = "has no use: there is neither `merged` nor `history`"
            raise refused_at({"merge": InvalidPipeline("bad-value", message)})
        return self

    @model_validator(mode="after")
    def _derives_from_something(self) -> Self:
        if self.gold and self.merged is None:
            message = "has nothing to read: there is no `merged`"
            raise refused_at({"gold": InvalidPipeline("bad-value", message)})
        return self


def _local(place: str) -> str | None:
    """The path of a folder on this machine."""
    if is_remote(place):
        return None
    path = place.split(":", 1)[1] if place.lower().startswith("file:/") else place
    return os.path.normpath(f"/{path.lstrip('/')}")
