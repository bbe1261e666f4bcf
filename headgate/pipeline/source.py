"""Where records come from."""

from __future__ import annotations

from typing import Annotated

from headgate.pipeline.delta import Delta
from headgate.pipeline.kafka import Kafka
from headgate.pipeline.one_of import OneOf


class SourceKeys(OneOf):
    """The source as the file writes it."""

    kafka: Kafka | None = None
    delta: Delta | None = None


Source = Annotated[Kafka | Delta, SourceKeys.as_field()]
