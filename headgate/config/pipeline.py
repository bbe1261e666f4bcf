"""All that the file of a stream of records says."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from itertools import combinations
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, PrivateAttr, field_validator, model_validator

from headgate.config.contract import Contract, ContractField
from headgate.config.envelopes import ChangeEnvelope, Envelope
from headgate.config.expect import Expectations, check_patterns
from headgate.config.gold import ROUTE, GoldTables, check_apart, check_sources
from headgate.config.location import LocalPlace, Origin, Place, is_remote
from headgate.config.model import Declared, refused_at
from headgate.config.names import ChangeTemplate, TableName, TableTemplate, around
from headgate.config.registry import RegistryField
from headgate.config.secrets import Secret, check_spark_setting, settings_checked_by
from headgate.config.sources import ChangeSource, Source
from headgate.config.units import Duration, Size
from headgate.errors import InvalidPipeline, shown

_NAME = re.compile(r"[a-z][a-z0-9_-]{0,62}")


def _check_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise InvalidPipeline(
            "bad-value",
            f"cannot be {shown(name)}",
            "start with a lowercase letter, then up to 62 lowercase letters, digits, `_` and `-`",
        )
    return name


def _checkpoint_in_lake(fields: dict[str, Any]) -> str:
    return f"{fields['lake'].rstrip('/')}/_checkpoints/{fields['name']}"


class AnyPipeline(Declared):
    """What a stream of records and a folder of change files have in common."""

    gold_source: ClassVar[str]
    """What gold calls the landed tables that it reads."""

    name: Annotated[str, AfterValidator(_check_name)] = Field(examples=["games"])
    """Names the pipeline in its ledger and its checkpoint; to rename is to begin anew."""

    source: Declared
    """Where it reads."""

    envelope: Declared
    """How what it reads is opened."""

    lake: LocalPlace = Field(examples=["./lake"])
    """The folder in which all tables are made."""

    checkpoint: Place = Field(default_factory=_checkpoint_in_lake)
    """Where progress is kept: by default under `_checkpoints` in the lake."""

    quarantine: TableName = "quarantine"
    """The table of records that could not land."""

    ledger: TableName = "ledger"
    """The table that says what each batch did."""

    contract: ContractField = Contract()
    """What a change of schema does."""

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
    """The most tables; records of further routes go to the quarantine."""

    trigger: Duration = Duration(seconds=10)
    """How often a continuous run looks for new records."""

    commit: Literal["auto", "delta-rs", "spark"] = "auto"
    """Who commits to the tables."""

    spark: Annotated[Mapping[str, str | Secret], settings_checked_by(check_spark_setting)] = Field(
        default_factory=dict
    )
    """Settings for the Spark session."""

    _file: str | None = PrivateAttr(None)

    @property
    def file(self) -> str | None:
        """The file that the pipeline was loaded from, as it was named there."""
        return self._file

    @property
    def own_tables(self) -> Mapping[str, str]:
        """Names of the tables that it has but once, by the key that names them."""
        return {"ledger": self.ledger, "quarantine": self.quarantine}

    @property
    def templates(self) -> Mapping[str, str]:
        """Templates of the landed tables, by the key that gives them."""
        return {}

    def model_post_init(self, context: object) -> None:
        if isinstance(context, Origin):
            self._file = context.file

    @model_validator(mode="after")
    def _each_table_has_its_own_name(self) -> Self:
        for (one, name), (other, other_name) in combinations(self.own_tables.items(), 2):
            if name == other_name:
                # Said of the one that stands in the file; the other may be there by default.
                given, taken = (other, one) if other in self.model_fields_set else (one, other)
                message = f"cannot be {shown(name)}: that is the name of `{taken}`"
                raise refused_at({given: InvalidPipeline("bad-value", message)})
        return self

    @field_validator("gold", mode="after")
    @classmethod
    def _gold_reads_what_is_landed(cls, gold: GoldTables) -> GoldTables:
        check_sources(gold, cls.gold_source)
        return gold

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

    def __eq__(self, other: object) -> bool:
        """Two pipelines that declare the same are equal, wherever they were written."""
        return type(other) is type(self) and dict(self) == dict(other)


class Pipeline(AnyPipeline):
    """One stream in, one table out per kind of record.

        Pipeline(
            name="games",
            source=Kafka(servers="localhost:9092", topics=["games"]),
            registry="./schemas",
            envelope=Wrapper(
                message="wrapper", route="game_name", schema_id="schema_id", payload="payload"
            ),
            lake="./lake",
        )

    `load_pipeline` reads the same from a file. Paths are absolute in both; sizes, durations and
    the registry may be given as the text that a file would have.
    """

    gold_source: ClassVar[str] = "silver"

    source: Source = Field(
        examples=[{"kafka": {"servers": "localhost:9092", "topics": ["games"]}}],
    )
    """Where records come from."""

    envelope: Envelope = Field(examples=["confluent"])
    """How a record is opened."""

    registry: RegistryField = Field(examples=["./schemas"])
    """Where schemas are asked for."""

    bronze: TableName | None = None
    """The table of records as they came, if one is wanted."""

    silver: TableTemplate = "silver_{route}"
    """The tables of opened records, one for each route."""

    max_record_bytes: Size = Size.parse("16 MB")
    """The largest record; larger ones go to the quarantine."""

    @property
    def own_tables(self) -> Mapping[str, str]:
        bronze = {"bronze": self.bronze} if self.bronze else {}
        return {**super().own_tables, **bronze}

    @property
    def templates(self) -> Mapping[str, str]:
        return {"silver": self.silver}


class Merge(Declared):
    """When and how the merged tables follow their change logs."""

    every: Duration | None = None
    """How often changes are merged; with each batch unless it is given."""

    metadata: bool = Field(default=True, strict=True)
    """Whether merged rows carry what is known of their last change."""

    horizon: Duration = Duration(days=3650)
    """How long deleted rows are remembered, by the source's time; later changes of them go to
    the quarantine."""

    spark_above: Size = Size.parse("2 GB")
    """Larger tables are merged by Spark."""


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
                    f"produces the same names as `{taken}`: {shown(templates[taken])}",
                    f"use a different prefix or suffix: `{_OTHER_WORDS[given]}`",
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
            message = "has no effect without `merged` or `history`"
            raise refused_at({"merge": InvalidPipeline("bad-value", message)})
        return self

    @model_validator(mode="after")
    def _derives_from_something(self) -> Self:
        if self.gold and self.merged is None:
            message = "has nothing to read without `merged`"
            raise refused_at({"gold": InvalidPipeline("bad-value", message)})
        return self


def _local(place: str) -> str | None:
    """The path of a folder on this machine."""
    if is_remote(place):
        return None
    path = place.split(":", 1)[1] if place.lower().startswith("file:/") else place
    return os.path.normpath(f"/{path.lstrip('/')}")
