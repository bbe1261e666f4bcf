"""The ground that all declarations stand on: frozen, and strict about keys."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from headgate.pipeline.explain import explain
from headgate.pipeline.finding import InvalidPipeline


class Declared(BaseModel):
    """A declaration: it says what is wanted, and does nothing."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        validate_default=True,
        hide_input_in_errors=True,
        use_attribute_docstrings=True,
    )

    def __init__(self, /, **fields: Any) -> None:
        try:
            super().__init__(**fields)
        except ValidationError as error:
            found = explain(error, type(self))
            findings = [replace(finding, line=None, column=None) for _, finding in found]
        else:
            return
        # Raised outside of the handler: the original error holds values, perhaps secret ones.
        raise InvalidPipeline.because_of(findings)

    # Says that models inside of others may be validated without a call of `__init__`, so that
    # the file's folder reaches them and all their findings come out together.
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]
