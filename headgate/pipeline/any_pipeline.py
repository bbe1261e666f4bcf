"""What every pipeline says, whatever it lands."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import combinations
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, PrivateAttr, field_validator, model_validator

from headgate.pipeline.change_template import around
from headgate.pipeline.contract import Contract, ContractField
from headgate.pipeline.declared import Declared
from headgate.pipeline.duration import Duration
from headgate.pipeline.expect import Expectations, check_patterns
from headgate.pipeline.finding import InvalidPipeline
from headgate.pipeline.gold import ROUTE, GoldTables, check_apart, check_sources
from headgate.pipeline.place import LocalPlace, Origin, Place
from headgate.pipeline.refused_at import refused_at
from headgate.pipeline.secret import Secret
from headgate.pipeline.settings import check_spark_setting, settings_checked_by
from headgate.pipeline.table_name import TableName
from headgate.pipeline.wording import shown

_NAME = re.compile(r"[a-z][a-z0-9_-]{0,62}")


def _check_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise InvalidPipeline(
            "bad-value",
            f"cannot be {shown(name)}",
            "it starts with a small letter, then up to 62 of small letters, digits, `_` and `-`",
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
