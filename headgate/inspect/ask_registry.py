"""A pipeline's registry, asked by a person: side by side, and with less patience than a run has."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

from headgate.config import Duration, Pipeline
from headgate.registry.open import open_registry
from headgate.registry.registry import SchemaCatalog

Question = TypeVar("Question")
Answer = TypeVar("Answer")

_PATIENCE = Duration(seconds=10)
_SIDE_BY_SIDE = 8


@contextmanager
def asked_registry(pipeline: Pipeline) -> Iterator[SchemaCatalog]:
    """The registry, let go of at the end."""
    patience = min(pipeline.schema_registry.timeout, _PATIENCE)
    registry = open_registry(pipeline.schema_registry.model_copy(update={"timeout": patience}))
    try:
        yield registry
    finally:
        registry.close()


def side_by_side(
    ask: Callable[[Question], Answer], questions: Iterable[Question]
) -> dict[Question, Answer]:
    """The answer to each question; the first trouble ends it."""
    asked = list(questions)
    with ThreadPoolExecutor(_SIDE_BY_SIDE) as pool:
        return dict(zip(asked, pool.map(ask, asked), strict=True))
