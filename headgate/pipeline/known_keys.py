"""Which keys may stand where, read off the models."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

Path = tuple[str | int, ...]
"""The keys, and the numbers of list items, that lead to a value."""


def models_at(path: Path, model: type[BaseModel]) -> list[type[BaseModel]]:
    """The models whose keys may stand under a path."""
    models, any_key = [model], False
    for key in path:
        if any_key:
            any_key = False
            continue
        fields = [each.model_fields[str(key)] for each in models if key in each.model_fields]
        models = [found for field in fields for found in _models_of(field)]
        any_key = any(get_origin(field.annotation) is Mapping for field in fields)
    return [] if any_key else models


def field_at(path: Path, model: type[BaseModel]) -> FieldInfo | None:
    """The field that a path leads to; None when it leads past the models."""
    for parent in models_at(path[:-1], model):
        if path and path[-1] in parent.model_fields:
            return parent.model_fields[str(path[-1])]
    return None


def known_keys(path: Path, model: type[BaseModel]) -> list[str]:
    return [key for parent in models_at(path, model) for key in parent.model_fields]


def paths_of_key(key: str, model: type[BaseModel], path: Path = ()) -> Iterator[Path]:
    """Every place where such a key is known."""
    if key in model.model_fields:
        yield path
    for name, field in model.model_fields.items():
        for inner in _models_of(field):
            yield from paths_of_key(key, inner, (*path, name))


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
