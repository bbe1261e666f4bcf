"""Lets one validator refuse several keys, each at its own place."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import ValidationError
from pydantic_core import InitErrorDetails

from headgate.pipeline.finding import InvalidPipeline


def refused_at(errors: Mapping[str | int, InvalidPipeline]) -> ValidationError:
    """An error for a validator to raise; the validation around it adds the path to each key."""
    # The inputs are left out: they may be secret, and no message needs them.
    details: list[InitErrorDetails] = [
        {"type": "value_error", "loc": (key,), "input": None, "ctx": {"error": error}}
        for key, error in errors.items()
    ]
    return ValidationError.from_exception_data("refused", details)
