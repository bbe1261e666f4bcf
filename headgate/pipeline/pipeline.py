"""All that the file of a stream of records says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from pydantic import Field

from headgate.pipeline.any_pipeline import AnyPipeline
from headgate.pipeline.envelope import Envelope
from headgate.pipeline.registry import RegistryField
from headgate.pipeline.size import Size
from headgate.pipeline.source import Source
from headgate.pipeline.table_name import TableName, TableTemplate


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
