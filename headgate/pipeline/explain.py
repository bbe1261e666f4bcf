"""Turns what validation found into findings that a person can act on."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date
from typing import TYPE_CHECKING

import yaml
from pydantic import BaseModel, ValidationError

from headgate.pipeline.finding import Finding, InvalidPipeline
from headgate.pipeline.known_keys import Path, field_at, known_keys, models_at, paths_of_key
from headgate.pipeline.wording import did_you_mean, listed, nearest, shown

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

_NEEDED: Mapping[str, str] = {
    "string_type": "text",
    "int_type": "a whole number",
    "bool_type": "`true` or `false`",
    "model_type": "keys and values",
    "dict_type": "keys and values",
    "sequence_str": "a list",
    "is_instance_of": "a list",
}


_OF_A_KEY = "[key]"
"""What validation puts at the end of a path if it is about the key and not its value."""


def explain(error: ValidationError, model: type[BaseModel]) -> list[tuple[Path, Finding]]:
    """Each cause once, with the path of keys that leads to it.

    A line and a column are those inside of the value, if it is a text that is wrong in part.
    """
    found = [
        (_path(details), _explain_one(details, model))
        for details in error.errors(include_url=False)
        # Those that a default is made of have findings of their own.
        if details["type"] != "default_factory_not_called"
    ]
    return [each for each in found if not _follows_from_typing_error(*each, found, model)]


def _path(details: ErrorDetails) -> Path:
    path = details["loc"]
    return path[:-1] if path[-1:] == (_OF_A_KEY,) else path


def _follows_from_typing_error(
    path: Path, finding: Finding, found: list[tuple[Path, Finding]], model: type[BaseModel]
) -> bool:
    """Whether a key is only missing because it stands there mistyped."""
    if finding.code not in ("missing-key", "choose-one"):
        return False
    unknown = [other for other, each in found if each.code == "unknown-key"]
    siblings = [other[-1] for other in unknown if other[:-1] == path[:-1]]
    meant = [nearest(str(key), known_keys(path[:-1], model)) for key in siblings]
    return any(f"`{key}`" in finding.message or path[-1:] == (key,) for key in meant if key)


def _explain_one(details: ErrorDetails, model: type[BaseModel]) -> Finding:
    match details["type"]:
        case "value_error" if isinstance(told := details["ctx"]["error"], InvalidPipeline):
            return _told(told, _path(details), model)
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
        return "the pipeline" if model.__name__.endswith("Pipeline") else f"`{model.__name__}`"
    *parent, key = path
    if isinstance(key, int):
        return f"item {key + 1} of `{'.'.join(map(str, parent))}`"
    if parent and field_at(path, model) is None:
        return f"`{key}` in `{'.'.join(map(str, parent))}`"
    return f"`{'.'.join(map(str, path))}`"


def _told(told: InvalidPipeline, path: Path, model: type[BaseModel]) -> Finding:
    # It is a mapping that has to choose, but one of its keys may be where that comes out.
    chooser = path if models_at(path, model) else path[:-1]
    subject = _subject(chooser if told.code == "choose-one" else path, model)
    joint = ": " if told.message.startswith("`") else " "
    line, column = told.inside or (None, None)
    return Finding(told.code, subject + joint + told.message, None, line, column, told.hint)


def _unknown_key(path: Path, model: type[BaseModel]) -> Finding:
    parent, key = path[:-1], str(path[-1])
    message = f"{_subject(parent, model)} has no key {shown(key)}"
    known = known_keys(parent, model)
    elsewhere = list(paths_of_key(key, model))
    if len(elsewhere) == 1:
        place = f"under {_subject(elsewhere[0], model)}" if elsewhere[0] else "at the top"
        return Finding("unknown-key", message, hint=f"it belongs {place}")
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
    return Finding("bad-choice", message, hint=question or f"it can be {listed(choices)}")


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
    written = yaml.safe_dump({path[-1]: field.examples[0]}, default_flow_style=True, width=200)
    return f"for example `{written.strip()[1:-1]}`"
