"""A choice that the file writes as a key: `source: {kafka: …}` or `source: {delta: …}`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, get_args

from pydantic import BeforeValidator, ConfigDict, ValidationInfo, model_validator

from headgate.pipeline.declared import Declared
from headgate.pipeline.finding import InvalidPipeline
from headgate.pipeline.refused_at import refused_at
from headgate.pipeline.wording import did_you_mean, listed, shown


class OneOf(Declared):
    """What the file shows of a choice: optional keys, of which exactly one is given."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1, "maxProperties": 1})

    of_the_other_kind: ClassVar[Mapping[str, str]] = {}
    """Choices that only another kind of pipeline has, and what to write instead."""

    @model_validator(mode="before")
    @classmethod
    def _exactly_one(cls, written: object) -> object:
        if not isinstance(written, dict):
            return written
        foreign = {key: cls._refusal(key) for key in written if key in cls.of_the_other_kind}
        if foreign:
            raise refused_at(foreign)
        keys = list(cls.model_fields)
        given = [key for key in keys if key in written]
        # A lone unknown key is a mistyped one, and will be told so.
        if len(given) > 1 or not written:
            raise InvalidPipeline("choose-one", f"needs exactly one of {listed(keys)}")
        return {key: {} if value is None else value for key, value in written.items()}

    @classmethod
    def as_field(cls) -> BeforeValidator:
        """Lets a field hold the chosen declaration itself, whichever way it is given."""

        def choose(value: object, info: ValidationInfo) -> object:
            if isinstance(value, str):
                value = cls._expand(value)
            if isinstance(value, Declared):
                return cls._accept(value)
            chosen = cls.model_validate(value, context=info.context)
            return next(each for _, each in chosen if each is not None)

        return BeforeValidator(choose, json_schema_input_type=cls | str)

    @classmethod
    def _expand(cls, word: str) -> dict[str, Any]:
        """`confluent` alone is short for `confluent: {}`."""
        keys = list(cls.model_fields)
        if word not in keys:
            hint = cls.of_the_other_kind.get(word) or did_you_mean(word, keys)
            hint = hint or f"it can be {listed(keys)}"
            raise InvalidPipeline("bad-choice", f"cannot be {shown(word)}", hint)
        return {word: {}}

    @classmethod
    def _refusal(cls, key: str) -> InvalidPipeline:
        return InvalidPipeline(
            "bad-choice", "is for streams of records", cls.of_the_other_kind[key]
        )

    @classmethod
    def _accept(cls, built: Declared) -> Declared:
        choices = [get_args(field.annotation)[0] for field in cls.model_fields.values()]
        if type(built) not in choices:
            names = listed(choice.__name__ for choice in choices)
            raise InvalidPipeline(
                "wrong-type", f"needs one of {names}, not a `{type(built).__name__}`"
            )
        return built
