"""Where records or changes come from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar

from headgate.pipeline.delta import Delta
from headgate.pipeline.files import Files
from headgate.pipeline.kafka import Kafka
from headgate.pipeline.one_of import OneOf


class SourceKeys(OneOf):
    """The source as the file writes it."""

    kafka: Kafka | None = None
    delta: Delta | None = None


Source = Annotated[Kafka | Delta, SourceKeys.as_field()]


class ChangeSourceKeys(OneOf):
    """The source of change files as the file writes it."""

    of_the_other_kind: ClassVar[Mapping[str, str]] = dict.fromkeys(
        SourceKeys.model_fields,
        "`envelope: datastream` opens change files: `source: {files: {path: ./landing}}`",
    )

    files: Files | None = None


ChangeSource = Annotated[Files, ChangeSourceKeys.as_field()]
