"""The base model of all declarations, and the translation of its errors into findings."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin

import yaml
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    ValidationError,
    ValidationInfo,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic_core import InitErrorDetails, PydanticCustomError, core_schema

from headgate.errors import Finding, InvalidPipeline, did_you_mean, listed, nearest, shown

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

Path = tuple[str | int, ...]
"""The keys and list indices that lead to a value."""


def models_at(path: Path, model: type[BaseModel]) -> list[type[BaseModel]]:
    """Return the models whose keys are allowed under a path."""
    models, any_keys = [model], 0
    for key in path:
        if any_keys:
            any_keys -= 1
            continue
        if isinstance(key, int):
            continue  # an item of a list has the keys of the others
        fields = [known[str(key)] for known in map(fields_by_key, models) if key in known]
        models = [found for field in fields for found in _models_of(field)]
        any_keys = max((_depth(field.annotation) for field in fields), default=0)
    return [] if any_keys else models


def fields_by_key(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """Return fields by their key in the file, which differs for `from`, a Python keyword."""
    return {field.alias or name: field for name, field in model.model_fields.items()}


def field_at(path: Path, model: type[BaseModel]) -> FieldInfo | None:
    """Return the field at a path; None if the path leads into free-form values."""
    for parent in models_at(path[:-1], model):
        if path and path[-1] in (fields := fields_by_key(parent)):
            return fields[str(path[-1])]
    return None


def known_keys(path: Path, model: type[BaseModel]) -> list[str]:
    return [key for parent in models_at(path, model) for key in fields_by_key(parent)]


def paths_of_key(key: str, model: type[BaseModel], path: Path = ()) -> Iterator[Path]:
    """Yield every path under which a key is known."""
    fields = fields_by_key(model)
    if key in fields:
        yield path
    for name, field in fields.items():
        for inner in _models_of(field):
            yield from paths_of_key(key, inner, (*path, name))


def _depth(annotation: object) -> int:
    """Return the number of nested mappings with user-defined keys."""
    if get_origin(annotation) is Annotated:
        return _depth(get_args(annotation)[0])
    return 1 + _depth(get_args(annotation)[1]) if get_origin(annotation) is Mapping else 0


def _models_of(field: FieldInfo) -> list[type[BaseModel]]:
    # If the file has a different shape than the field, the validator declares it.
    for metadata in field.metadata:
        written = getattr(metadata, "json_schema_input_type", None)
        if found := _models_in(written):
            return found
    return _models_in(field.annotation)


def _models_in(annotation: object) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [found for part in get_args(annotation) for found in _models_in(part)]


_NEEDED: Mapping[str, str] = {
    "string_type": "text",
    "int_type": "a whole number",
    "bool_type": "`true` or `false`",
    "model_type": "keys and values",
    "dict_type": "keys and values",
    "sequence_str": "a list",
    "tuple_type": "a list",
    "is_instance_of": "a list",
}


_KEY_MARKER = "[key]"
"""Pydantic appends this to the path of an error about a key instead of its value."""


def explain(error: ValidationError, model: type[BaseModel]) -> list[tuple[Path, Finding]]:
    """Return one finding per cause, with its path.

    Line and column are relative to the value, for errors inside a text such as SQL.
    """
    found = [
        (_path(details), _explain_one(details, model))
        for details in error.errors(include_url=False)
        # The fields that the default depends on have their own findings.
        if details["type"] != "default_factory_not_called"
    ]
    return [each for each in found if not _follows_from_mistyped_key(*each, found, model)]


def _path(details: ErrorDetails) -> Path:
    path = details["loc"]
    return path[:-1] if path[-1:] == (_KEY_MARKER,) else path


def _follows_from_mistyped_key(
    path: Path, finding: Finding, found: list[tuple[Path, Finding]], model: type[BaseModel]
) -> bool:
    """Whether a key is missing only because it is mistyped."""
    if finding.code not in ("missing-key", "choose-one"):
        return False
    unknown = [other for other, each in found if each.code == "unknown-key"]
    siblings = [other[-1] for other in unknown if other[:-1] == path[:-1]]
    meant = [nearest(str(key), known_keys(path[:-1], model)) for key in siblings]
    return any(f"`{key}`" in finding.message or path[-1:] == (key,) for key in meant if key)


def _explain_one(details: ErrorDetails, model: type[BaseModel]) -> Finding:
    match details["type"]:
        case "value_error" if isinstance(error := details["ctx"]["error"], InvalidPipeline):
            return _invalid_value(error, _path(details), model)
        case "extra_forbidden" | "invalid_key":
            return _unknown_key(details["loc"], model)
        case "missing":
            return _missing_key(details["loc"], model)
        case "literal_error" | "enum":
            return _bad_choice(details, model)
        case kind if kind in _NEEDED:
            return _wrong_type(details, model)
        case _:
            message = f"{_subject(details['loc'], model)} cannot be {shown(details['input'])}"
            hint = details["msg"].replace("Input should", "it should")
            return Finding("bad-value", message, hint=hint)


def _subject(path: Path, model: type[BaseModel]) -> str:
    if not path:
        return (
            "the pipeline"
            if model.__name__.endswith(("Pipeline", "PipelineConfig"))
            else f"`{model.__name__}`"
        )
    *parent, key = path
    if isinstance(key, int):
        return f"item {key + 1} of {_subject(tuple(parent), model)}"
    if parent and isinstance(parent[-1], int):
        return f"`{key}` in {_subject(tuple(parent), model)}"
    if parent and field_at(path, model) is None:
        return f"`{key}` in `{'.'.join(map(str, parent))}`"
    return f"`{'.'.join(map(str, path))}`"


def _invalid_value(error: InvalidPipeline, path: Path, model: type[BaseModel]) -> Finding:
    # The choice is made by a mapping, but a validator of one of its keys may raise the error.
    chooser = path if models_at(path, model) else path[:-1]
    subject = _subject(chooser if error.code == "choose-one" else path, model)
    separator = ": " if error.message.startswith("`") else " "
    line, column = error.inside or (None, None)
    return Finding(error.code, subject + separator + error.message, None, line, column, error.hint)


def _unknown_key(path: Path, model: type[BaseModel]) -> Finding:
    parent, key = path[:-1], str(path[-1])
    message = f"{_subject(parent, model)} has no key {shown(key)}"
    known = known_keys(parent, model)
    elsewhere = list(paths_of_key(key, model))
    if len(elsewhere) == 1:
        parent_key = (
            f"under {_subject(elsewhere[0], model)}" if elsewhere[0] else "at the top level"
        )
        return Finding("unknown-key", message, hint=f"it belongs {parent_key}")
    hint = did_you_mean(key, known) or f"known keys: {listed(known)}"
    return Finding("unknown-key", message, hint=hint)


def _missing_key(path: Path, model: type[BaseModel]) -> Finding:
    message = f"{_subject(path[:-1], model)} needs {listed(path[-1:])}"
    return Finding("missing-key", message, hint=_example(path, model))


def _bad_choice(details: ErrorDetails, model: type[BaseModel]) -> Finding:
    path, given = details["loc"], details["input"]
    choices = re.findall(r"'([^']*)'", details["ctx"]["expected"])
    message = f"{_subject(path, model)} cannot be {shown(given)}"
    question = did_you_mean(given, choices) if isinstance(given, str) else None
    return Finding("bad-choice", message, hint=question or f"use one of {listed(choices)}")


def _wrong_type(details: ErrorDetails, model: type[BaseModel]) -> Finding:
    path, given, needed = _path(details), details["input"], _NEEDED[details["type"]]
    not_this = "text" if needed == "keys and values" and isinstance(given, str) else shown(given)
    message = f"{_subject(path, model)} needs {needed}, not {not_this}"
    if needed == "text" and isinstance(given, bool | int | float | date):
        return Finding("wrong-type", message, hint="put it in quotes")
    if needed == "a whole number" and isinstance(given, str):
        return Finding("wrong-type", message, hint="write it as digits, without quotes")
    return Finding("wrong-type", message, hint=_example(path, model))


def _example(path: Path, model: type[BaseModel]) -> str | None:
    field = field_at(path, model)
    if field is None or not field.examples:
        return None
    written = [
        yaml.safe_dump({path[-1]: example}, default_flow_style=True, width=200).strip()[1:-1]
        for example in field.examples
    ]
    return f"for example {' or '.join(f'`{each}`' for each in written)}"


class ConfigModel(BaseModel):
    """A declaration: a frozen model that rejects unknown keys."""

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
        # Raised outside of the handler: the original error holds values, which may be secrets.
        raise InvalidPipeline.because_of(findings)

    # Lets pydantic validate nested models without calling `__init__`, so that they get the file's
    # context and all findings are reported together.
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]


def invalid_at(errors: Mapping[str | int, InvalidPipeline]) -> ValidationError:
    """Return an error for a validator to raise; pydantic prepends the path of the model."""
    return invalid_at_paths({(key,): error for key, error in errors.items()})


def invalid_at_paths(errors: Mapping[Path, InvalidPipeline]) -> ValidationError:
    """Return an error for a validator to raise, for nested keys."""
    # Inputs are omitted: they may be secrets, and no message needs them.
    details: list[InitErrorDetails] = [
        {"type": "value_error", "loc": path, "input": None, "ctx": {"error": error}}
        for path, error in errors.items()
    ]
    return ValidationError.from_exception_data("invalid", details)


def missing(key: str) -> ValidationError:
    """Return the error for a missing key."""
    details: InitErrorDetails = {"type": "missing", "loc": (key,), "input": None}
    return ValidationError.from_exception_data("invalid", [details])


def combine_errors(errors: Sequence[ValidationError]) -> ValidationError:
    """Combine errors, so that all of them are reported together."""
    details: list[InitErrorDetails] = [
        {
            "type": _error_type(each),
            "loc": each["loc"],
            "input": each["input"],
            "ctx": each.get("ctx", {}),
        }
        for error in errors
        for each in error.errors(include_url=False)
    ]
    return ValidationError.from_exception_data("invalid", details)


def _error_type(details: ErrorDetails) -> str | PydanticCustomError:
    """Return an error type; those raised as custom errors cannot be passed by name."""
    if details["type"] in get_args(core_schema.ErrorType):
        return details["type"]
    return PydanticCustomError(details["type"], details["msg"])


class OneOf(ConfigModel):
    """A choice in the file: optional keys, of which exactly one must be given."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1, "maxProperties": 1})

    @model_validator(mode="before")
    @classmethod
    def _exactly_one(cls, written: object) -> object:
        if not isinstance(written, dict):
            return written
        keys = list(cls.model_fields)
        given = [key for key in keys if key in written]
        # A single unknown key is mistyped; it gets a finding as such.
        if len(given) > 1 or not written:
            raise InvalidPipeline("choose-one", f"needs exactly one of {listed(keys)}")
        return {key: {} if value is None else value for key, value in written.items()}

    @classmethod
    def as_field(cls) -> BeforeValidator:
        """Return a validator that stores the chosen declaration itself in the field."""

        def choose(value: object, info: ValidationInfo) -> object:
            if isinstance(value, str):
                value = cls._expand(value)
            if isinstance(value, ConfigModel):
                return cls._accept(value)
            chosen = cls.model_validate(value, context=info.context)
            return next(each for _, each in chosen if each is not None)

        return BeforeValidator(choose, json_schema_input_type=cls | str)

    @classmethod
    def _expand(cls, word: str) -> dict[str, Any]:
        """Expand `confluent` to `confluent: {}`."""
        keys = list(cls.model_fields)
        if word not in keys:
            hint = did_you_mean(word, keys) or f"use one of {listed(keys)}"
            raise InvalidPipeline("bad-choice", f"cannot be {shown(word)}", hint)
        return {word: {}}

    @classmethod
    def _accept(cls, built: ConfigModel) -> ConfigModel:
        choices = [get_args(field.annotation)[0] for field in cls.model_fields.values()]
        if type(built) not in choices:
            names = listed(choice.__name__ for choice in choices)
            raise InvalidPipeline(
                "wrong-type", f"needs one of {names}, not a `{type(built).__name__}`"
            )
        return built
