"""What going from one schema to another changes, and what a contract makes of it."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from headgate.inspect.named_schema import Named, NamedSchema, find_schema
from headgate.inspect.planned import change_record
from headgate.inspect.rewriting import can_rewrite
from headgate.inspect.table_schema import open_table
from headgate.land.commit_with_delta_rs import size_of
from headgate.pipeline import Contract, Pipeline, Rules
from headgate.schema.change import DropColumn, RenameColumn, SchemaChange, WidenType
from headgate.schema.field_facts import apart_from
from headgate.schema.fit import fit


@dataclass(frozen=True)
class SchemaDiff:
    """Two schemas, and the way from the first to the second."""

    first: NamedSchema
    second: NamedSchema
    contract: Rules
    changes: tuple[SchemaChange, ...]

    def as_record(self) -> dict[str, Any]:
        return {
            "from": _record(self.first),
            "to": _record(self.second),
            "contract": self.contract.model_dump(mode="json"),
            "changes": [change_record(one) for one in self.changes],
        }


def read_schema_diff(first: str, second: str, pipeline: Pipeline | None = None) -> SchemaDiff:
    """A pipeline is needed for all but files; without one, the contract follows every change."""
    one, other = find_schema(first, pipeline), find_schema(second, pipeline)
    rules = _rules(pipeline, one, other)
    diff = diff_schemas(one, other, rules)
    if any(isinstance(change, WidenType) for change in diff.changes):
        return diff_schemas(one, other, rules, _may_widen(pipeline, one))
    return diff


def diff_schemas(
    first: NamedSchema, second: NamedSchema, contract: Rules, may_widen: bool = True
) -> SchemaDiff:
    """As if records of the second came to a table with the columns of the first."""
    asked = fit(second.columns, first.columns, contract, may_widen).changes
    renamed = {change.was for change in asked if isinstance(change, RenameColumn)}
    gone = _gone(first.columns, second.columns, renamed)
    return SchemaDiff(first, second, contract, (*asked, *map(DropColumn, gone)))


def _gone(before: pa.Schema, after: pa.Schema, renamed: Collection[str]) -> Iterator[str]:
    types = dict(zip(after.names, after.types, strict=True))
    for column in before:
        if column.name in types:
            yield from _gone_inside(column.type, types[column.name], column.name)
        elif column.name not in renamed and apart_from(column) is None:
            yield column.name


def _gone_inside(before: pa.DataType, after: pa.DataType, path: str) -> Iterator[str]:
    """Fields inside a column, as long as it is of the same kind in both."""
    if pa.types.is_struct(before) and pa.types.is_struct(after):
        types = {one.name: one.type for one in after}
        for one in before:
            inside = f"{path}.{one.name}"
            if one.name in types:
                yield from _gone_inside(one.type, types[one.name], inside)
            else:
                yield inside
    elif pa.types.is_list(before) and pa.types.is_list(after):
        yield from _gone_inside(before.value_type, after.value_type, f"{path}.element")
    elif pa.types.is_map(before) and pa.types.is_map(after):
        yield from _gone_inside(before.item_type, after.item_type, f"{path}.value")


def _rules(pipeline: Pipeline | None, *schemas: NamedSchema) -> Rules:
    contract = pipeline.contract if pipeline is not None else Contract()
    for one in schemas:
        if one.what is Named.TABLE:
            return contract.for_table(one.name)
    return Rules(tables=contract.tables, columns=contract.columns, types=contract.types)


def _may_widen(pipeline: Pipeline | None, first: NamedSchema) -> bool:
    if pipeline is None or first.what is not Named.TABLE:
        return True
    size = size_of(open_table(pipeline, first.name))
    return can_rewrite(pipeline, first.name, size)


def _record(schema: NamedSchema) -> dict[str, Any]:
    return {name: value for name, value in vars(schema).items() if name != "columns"}
