"""Which keys may stand where, read off the models."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

Path = tuple[str | int, ...]
"""The keys, and the numbers of list items, that lead to a value."""


def models_at(path: Path, model: type[BaseModel]) -> list[type[BaseModel]]:
    """The models whose keys may stand under a path."""
    models, any_keys = [model], 0
    for key in path:
        if any_keys:
            any_keys -= 1
            continue
        fields = [known[str(key)] for known in map(fields_by_key, models) if key in known]
        models = [found for field in fields for found in _models_of(field)]
        any_keys = max((_depth(field.annotation) for field in fields), default=0)
    return [] if any_keys else models


def fields_by_key(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """Fields by what the file calls them: `from` is no name that Python allows."""
    return {field.alias or name: field for name, field in model.model_fields.items()}


def field_at(path: Path, model: type[BaseModel]) -> FieldInfo | None:
    """The field that a path leads to; None when it leads past the models."""
    for parent in models_at(path[:-1], model):
        if path and path[-1] in (fields := fields_by_key(parent)):
            return fields[str(path[-1])]
    return None


def known_keys(path: Path, model: type[BaseModel]) -> list[str]:
    return [key for parent in models_at(path, model) for key in fields_by_key(parent)]


def paths_of_key(key: str, model: type[BaseModel], path: Path = ()) -> Iterator[Path]:
    """Every place where such a key is known."""
    fields = fields_by_key(model)
    if key in fields:
        yield path
    for name, field in fields.items():
        for inner in _models_of(field):
            yield from paths_of_key(key, inner, (*path, name))


def _depth(annotation: object) -> int:
    """How many keys of a person's own stand one below the other."""
    if get_origin(annotation) is Annotated:
        return _depth(get_args(annotation)[0])
    return 1 + _depth(get_args(annotation)[1]) if get_origin(annotation) is Mapping else 0


def _models_of(field: FieldInfo) -> list[type[BaseModel]]:
    # Where the file is written in another shape than the field has, the validator knows it.
    for metadata in field.metadata:
        written = getattr(metadata, "json_schema_input_type", None)
        if found := _models_in(written):
            return found
    return _models_in(field.annotation)


def _models_in(annotation: object) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [found for part in get_args(annotation) for found in _models_in(part)]
