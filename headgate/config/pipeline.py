"""A pipeline: everything that one pipeline file says, checked and frozen."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from itertools import combinations
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    Field,
    ModelWrapValidatorHandler,
    PrivateAttr,
    ValidationError,
    model_validator,
)

from headgate.config.contract import Contract, ContractField
from headgate.config.envelopes import Datastream, EnvelopeField
from headgate.config.expect import Expectations, check_patterns
from headgate.config.gold import ROUTE, GoldTables, check_apart, check_sources
from headgate.config.location import LocalPlace, Origin, Place, is_remote
from headgate.config.model import Declared, missing, refused_at, refused_together
from headgate.config.names import ChangeTemplate, TableName, TableTemplate, around
from headgate.config.registry import Registry, RegistryField
from headgate.config.secrets import Secret, check_spark_setting, settings_checked_by
from headgate.config.sources import Files, SourceField, SourceKeys
from headgate.config.units import Duration, Size
from headgate.errors import InvalidPipeline, nearest, shown

FILES_TABLE = "_files"
"""The table of files that were read; no template produces a name with a leading `_`."""

RECORD_KEYS = ("registry", "bronze", "silver", "max_record_bytes")
"""Keys that only a stream of records has."""

CHANGE_KEYS = ("change_log", "merged", "history", "merge", "max_file_bytes")
"""Keys that only change files have."""

_NAME = re.compile(r"[a-z][a-z0-9_-]{0,62}")

_OTHER_TEMPLATES = {
    "change_log": "log_{database}_{table}",
    "merged": "now_{database}_{table}",
    "history": "history_{database}_{table}",
}


def _check_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise InvalidPipeline(
            "bad-value",
            f"cannot be {shown(name)}",
            "it starts with a lowercase letter, then up to 62 lowercase letters, digits, `_` "
            "and `-`",
        )
    return name


def _checkpoint_in_lake(fields: dict[str, Any]) -> str:
    return f"{fields['lake'].rstrip('/')}/_checkpoints/{fields['name']}"


class Merge(Declared):
    """When and how the merged tables follow their change logs."""

    every: Duration | None = None
    """How often changes are merged; with each batch by default."""

    metadata: bool = Field(default=True, strict=True)
    """Whether merged rows carry the metadata of their last change."""

    horizon: Duration = Duration(days=3650)
    """How long deleted rows are remembered, by the source's time; later changes of them go to
    the quarantine."""

    spark_above: Size = Size.parse("2 GB")
    """Tables larger than this are merged by Spark."""


class Pipeline(Declared):
    """One source in, one Delta table out per kind of record, or per table of a database.

        Pipeline(
            name="games",
            source=Kafka(servers="localhost:9092", topics=["games"]),
            registry="./schemas",
            envelope=Wrapper(
                message="wrapper", route="game_name", schema_id="schema_id", payload="payload"
            ),
            lake="./lake",
        )

        Pipeline(
            name="shop",
            source=Files(path="./landing"),
            envelope=Datastream(),
            lake="./lake",
            history="history_{database}_{table}",
        )

    `headgate.load` reads the same from a file. Paths are absolute in both; sizes, durations and
    the registry can be given as the text that a file would have.
    """

    name: Annotated[str, AfterValidator(_check_name)] = Field(examples=["games"])
    """Names the pipeline in its ledger and its checkpoint; a renamed pipeline starts over."""

    source: SourceField = Field(
        examples=[{"kafka": {"servers": "localhost:9092", "topics": ["games"]}}],
    )
    """Where records or change files are read from."""

    envelope: EnvelopeField = Field(examples=["confluent", "datastream"])
    """How records or change files are opened."""

    lake: LocalPlace = Field(examples=["./lake"])
    """The folder of all tables."""

    checkpoint: Place = Field(default_factory=_checkpoint_in_lake)
    """Where progress is kept: by default under `_checkpoints` in the lake."""

    quarantine_table: TableName = Field(default="quarantine", alias="quarantine")
    """The table of records that could not land."""

    ledger: TableName = "ledger"
    """The table that records what each batch did."""

    contract: ContractField = Contract()
    """What a schema change does."""

    expect: Expectations = Field(
        default_factory=dict,
        examples=[{"silver_*": {"valid_user": {"rule": "user_name IS NOT NULL"}}}],
    )
    """Rules that rows have to meet, by pattern of the names of landed tables and by name of the
    rule."""

    gold: GoldTables = Field(
        default_factory=dict,
        examples=[{"gold_{route}_rows": "SELECT count(*) AS number FROM silver"}],
    )
    """Tables that are derived from the landed ones, by name: a SELECT, or a union. With `{route}`
    in the name there is one for each landed table, else one over all of them."""

    max_tables: int = Field(default=2000, strict=True, gt=0)
    """The maximum number of tables; records of further routes go to the quarantine."""

    trigger: Duration = Duration(seconds=10)
    """How often a continuous run looks for new records."""

    commit: Literal["auto", "delta-rs", "spark"] = "auto"
    """Which engine commits to the tables."""

    spark: Annotated[Mapping[str, str | Secret], settings_checked_by(check_spark_setting)] = Field(
        default_factory=dict
    )
    """Settings for the Spark session."""

    registry: RegistryField | None = Field(default=None, examples=["./schemas"])
    """Where schemas are looked up."""

    bronze: TableName | None = None
    """The table of records as they came; `null` for none."""

    silver: TableTemplate = "silver_{route}"
    """The tables of opened records, one for each route."""

    max_record_bytes: Size = Size.parse("16 MB")
    """The largest record; larger ones go to the quarantine."""

    change_log: ChangeTemplate = "log_{database}_{table}"
    """The tables of all changes, one for each table of the source."""

    merged: ChangeTemplate | None = "{database}_{table}"
    """The tables of current rows; `null` for none."""

    history: ChangeTemplate | None = None
    """The tables of rows as they were at each time; `null` for none."""

    merge: Merge = Merge()
    """How changes become rows."""

    max_file_bytes: Size = Size.parse("1 GB")
    """The largest change file; larger ones go to the quarantine."""

    _file: str | None = PrivateAttr(None)

    @property
    def file(self) -> str | None:
        """The file that the pipeline was loaded from, as it was named there."""
        return self._file

    @property
    def lands_changes(self) -> bool:
        """Whether the source is change files of a database rather than a stream of records."""
        return isinstance(self.source, Files)

    @property
    def change_files(self) -> Files:
        """The source, of a pipeline that lands changes."""
        assert isinstance(self.source, Files)
        return self.source

    @property
    def datastream(self) -> Datastream:
        """The envelope, of a pipeline that lands changes."""
        assert isinstance(self.envelope, Datastream)
        return self.envelope

    @property
    def schema_registry(self) -> Registry:
        """The registry, which every stream of records has."""
        assert self.registry is not None
        return self.registry

    @property
    def gold_source(self) -> str:
        """What `gold` calls the landed tables that it reads."""
        return "merged" if self.lands_changes else "silver"

    @property
    def own_tables(self) -> Mapping[str, str]:
        """Names of the tables that exist once, by the key that names them."""
        own = {"ledger": self.ledger, "quarantine": self.quarantine_table}
        if self.lands_changes:
            return {**own, "files": FILES_TABLE}
        return {**own, "bronze": self.bronze} if self.bronze else own

    @property
    def templates(self) -> Mapping[str, str]:
        """Templates of the landed tables, by the key that names them."""
        if not self.lands_changes:
            return {"silver": self.silver}
        given = {"change_log": self.change_log, "merged": self.merged, "history": self.history}
        return {key: template for key, template in given.items() if template}

    def model_post_init(self, context: object) -> None:
        if isinstance(context, Origin):
            self._file = context.file

    @model_validator(mode="after")
    def _source_and_envelope_go_together(self) -> Self:
        if self.lands_changes and not isinstance(self.envelope, Datastream):
            error = InvalidPipeline(
                "bad-choice", "opens records", "change files come with `envelope: datastream`"
            )
            raise refused_at({"envelope": error})
        if not self.lands_changes and isinstance(self.envelope, Datastream):
            error = InvalidPipeline(
                "bad-choice",
                "is for streams of records",
                "`envelope: datastream` opens change files: `source: {files: {path: ./landing}}`",
            )
            raise refused_at({"source": error})
        return self

    @model_validator(mode="wrap")
    @classmethod
    def _keys_go_with_the_source(
        cls, written: object, validate: ModelWrapValidatorHandler[Self]
    ) -> Self:
        """Report keys that have no use with this source beside everything else that is wrong."""
        if not isinstance(written, Mapping):
            return validate(written)
        changes = _declares_changes(written)
        other = "streams of records" if changes else "change files, `source: {files: …}`"
        foreign: dict[str | int, InvalidPipeline] = {
            key: InvalidPipeline("unknown-key", "has no use here", f"it is for {other}")
            for key in (RECORD_KEYS if changes else CHANGE_KEYS)
            if key in written and written[key] != cls.model_fields[key].default
        }
        refused = [refused_at(foreign)] if foreign else []
        if not changes and not _opens_changes(written) and "registry" not in written:
            refused.append(missing("registry"))
        try:
            pipeline = validate({key: written[key] for key in written if key not in foreign})
        except ValidationError as error:
            raise refused_together([error, *refused]) if refused else error from None
        if refused:
            raise refused_together(refused)
        return pipeline

    @model_validator(mode="after")
    def _each_table_has_its_own_name(self) -> Self:
        for (one, name), (other, other_name) in combinations(self.own_tables.items(), 2):
            if name == other_name:
                given, taken = self._given_and_taken(one, other)
                message = f"cannot be {shown(name)}: that is the name of `{taken}`"
                raise refused_at({given: InvalidPipeline("bad-value", message)})
        return self

    @model_validator(mode="after")
    def _each_kind_of_table_has_its_own_names(self) -> Self:
        """Tell kinds of tables apart by what surrounds the placeholders."""
        templates = self.templates
        for (one, first), (other, second) in combinations(templates.items(), 2):
            if around(first) == around(second):
                given, taken = self._given_and_taken(one, other)
                error = InvalidPipeline(
                    "bad-template",
                    f"gives names that `{taken}` gives: {shown(templates[taken])}",
                    f"put something before or after it: `{_OTHER_TEMPLATES[given]}`",
                )
                raise refused_at({given: error})
        return self

    @model_validator(mode="after")
    def _does_not_read_what_it_writes(self) -> Self:
        if not isinstance(self.source, Files):
            return self
        lake, landing = _local(self.lake), _local(self.source.path)
        if lake and landing and os.path.commonpath([lake, landing]) == landing:
            message = f"is inside `source.files.path`: {shown(self.source.path)}"
            hint = "its own tables would be read as change files"
            raise refused_at({"lake": InvalidPipeline("bad-value", message, hint)})
        return self

    @model_validator(mode="after")
    def _merges_into_something(self) -> Self:
        if not self.lands_changes or self.merged is not None:
            return self
        if "merge" in self.model_fields_set and self.history is None:
            message = "has no use: there is neither `merged` nor `history`"
            raise refused_at({"merge": InvalidPipeline("bad-value", message)})
        if self.gold:
            message = "has nothing to read: there is no `merged`"
            raise refused_at({"gold": InvalidPipeline("bad-value", message)})
        return self

    @model_validator(mode="after")
    def _gold_reads_what_is_landed(self) -> Self:
        check_sources(self.gold, self.gold_source)
        return self

    @model_validator(mode="after")
    def _gold_has_its_own_names(self) -> Self:
        # Change tables without words around them leave the names of others to those.
        apart = {
            key: each for key, each in self.templates.items() if any(around(each)) or each == ROUTE
        }
        check_apart(self.gold, {**self.own_tables, **apart})
        return self

    @model_validator(mode="after")
    def _expects_something_of_landed_tables(self) -> Self:
        check_patterns(self.expect, self.templates.values())
        return self

    def _given_and_taken(self, one: str, other: str) -> tuple[str, str]:
        """Blame the key that the file has; the other may be a default."""
        fields = type(self).model_fields
        given = {fields[name].alias or name for name in self.model_fields_set}
        return (other, one) if other in given else (one, other)

    def __eq__(self, other: object) -> bool:
        """Compare what is declared, wherever it was written."""
        return type(other) is type(self) and dict(self) == dict(other)


def _declares_changes(written: Mapping[Any, object]) -> bool:
    """Whether the source, perhaps mistyped, or the envelope is that of change files."""
    source = written.get("source")
    if isinstance(source, Declared):
        return isinstance(source, Files)
    chosen = [*source] if isinstance(source, Mapping) else [source]
    known = [nearest(str(key), list(SourceKeys.model_fields)) for key in chosen]
    if any(known):
        return "files" in known
    return _opens_changes(written)


def _opens_changes(written: Mapping[Any, object]) -> bool:
    envelope = written.get("envelope")
    keys = [*envelope] if isinstance(envelope, Mapping) else [envelope]
    return "datastream" in keys or isinstance(envelope, Datastream)


def _local(place: str) -> str | None:
    """Return the path of a folder on this machine."""
    if is_remote(place):
        return None
    path = place.split(":", 1)[1] if place.lower().startswith("file:/") else place
    return os.path.normpath(f"/{path.lstrip('/')}")
