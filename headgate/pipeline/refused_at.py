"""Lets one validator refuse several keys, each at its own place."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import ValidationError
from pydantic_core import InitErrorDetails

from headgate.pipeline.finding import InvalidPipeline
from headgate.pipeline.known_keys import Path


def refused_at(errors: Mapping[str | int, InvalidPipeline]) -> ValidationError:
    """An error for a validator to raise; the validation around it adds the path to each key."""
    return refused_below({(key,): error for key, error in errors.items()})


def refused_below(errors: Mapping[Path, InvalidPipeline]) -> ValidationError:
    """The same of keys that stand deeper."""
    # The inputs are left out: they may be secret, and no message needs them.
    details: list[InitErrorDetails] = [
        {"type": "value_error", "loc": path, "input": None, "ctx": {"error": error}}
        for path, error in errors.items()
    ]
    return ValidationError.from_exception_data("refused", details)
