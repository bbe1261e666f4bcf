"""A SELECT over the tables of a pipeline, checked as far as that goes without their columns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from sqlglot import exp

from headgate.pipeline.sql.columns import columns_in, distinct_names, root_of, without_qualifier
from headgate.pipeline.sql.dialect import as_written
from headgate.pipeline.sql.functions import aggregates_in, innermost_call, is_aggregate
from headgate.pipeline.sql.grouping import group_keys, has_grouping_sets, refuse_ungrouped
from headgate.pipeline.sql.outputs import Output, read_outputs
from headgate.pipeline.sql.parse import bad_sql, not_too_deep, parse_select, place_of
from headgate.pipeline.sql.refuse import refuse_everywhere
from headgate.pipeline.wording import did_you_mean, shown

_AFTER_OUTPUTS = ("having", "qualify", "order", "sort", "cluster", "distribute")
"""Clauses in which a name may be that of an output."""


@dataclass(frozen=True)
class ReadSelect:
    """The parts of a SELECT; its columns stand without the name of their table."""

    text: str
    tree: exp.Select
    outputs: tuple[Output, ...]
    keys: tuple[exp.Expr, ...]
    simple: bool
    """Whether it reads a single table, once."""
    aggregated: bool

    @property
    def columns(self) -> frozenset[str]:
        """The columns of the tables that it uses; of queries inside, all names."""
        return distinct_names(_input_columns(self))

    @property
    def tables(self) -> list[exp.Table]:
        """Where it reads, names of its own WITH left out."""
        own = {each.alias.lower() for each in self.tree.find_all(exp.CTE)}
        return [each for each in self.tree.find_all(exp.Table) if each.name.lower() not in own]


@lru_cache(maxsize=256)
@not_too_deep
def read_select(text: str) -> ReadSelect:
    """The parts of a SELECT. Nobody may change its tree: others are given the same."""
    tree = parse_select(text)
    refuse_everywhere(tree)
    simple = _is_simple(tree)
    if simple:
        _leave_out_qualifiers(tree)
    outputs = read_outputs(tree.expressions)
    _refuse_misplaced_aggregates(tree)
    keys = () if has_grouping_sets(tree) else group_keys(tree, outputs)
    aggregated = any(tree.args.get(key) for key in ("group", "having")) or any(
        any(aggregates_in(each.node)) for each in outputs
    )
    if simple and aggregated and not has_grouping_sets(tree):
        refuse_ungrouped(outputs, keys)
    return ReadSelect(text, tree, outputs, keys, simple, aggregated)


def check_tables(text: str, source: str) -> None:
    """Refuses to read anything but the tables that the pipeline lands."""
    read = read_select(text)
    hint = f"`FROM {source}` stands for the tables that are landed"
    if any(each.alias.lower() == source for each in read.tree.find_all(exp.CTE)):
        raise bad_sql(f"calls something else `{source}`", hint)
    for table in read.tables:
        name = as_written(table.this)
        if table.db or name.lower() != source:
            given = as_written(table).split(" AS ")[0]
            meant = did_you_mean(name, [source])
            raise bad_sql(f"reads {shown(given)}, not `{source}`", meant or hint, place_of(table))
        if table.args.get("version") or table.args.get("sample") or table.find(exp.TableSample):
            raise bad_sql(f"reads only some of `{source}`", "leave that out", place_of(table))
    if not read.tables:
        raise bad_sql(f"does not read `{source}`", hint)


def _is_simple(tree: exp.Select) -> bool:
    source = tree.args.get("from_")
    return (
        source is not None
        and isinstance(source.this, exp.Table)
        and not source.this.args.get("pivots")
        and not tree.args.get("joins")
        and sum(1 for _ in tree.find_all(exp.Query)) == 1
    )


def _leave_out_qualifiers(tree: exp.Select) -> None:
    laterals = [each.args["alias"].name for each in tree.args.get("laterals") or () if each.alias]
    names = frozenset(
        name.lower() for name in (tree.args["from_"].this.alias_or_name, *laterals) if name
    )
    for column in list(tree.find_all(exp.Column)):
        bare = without_qualifier(column, names)
        if bare is not column:
            column.replace(bare)


def _refuse_misplaced_aggregates(tree: exp.Select) -> None:
    for aggregate in aggregates_in(tree.args.get("where") or exp.Null()):
        hint = "WHERE is asked of rows; `HAVING` of groups"
        raise bad_sql(
            f"has an aggregate in WHERE: {shown(as_written(aggregate))}", hint, place_of(aggregate)
        )
    for output in tree.expressions:
        for aggregate in aggregates_in(output):
            call = innermost_call(aggregate)
            for inner in (each for each in call.walk() if each is not call):
                if is_aggregate(inner):
                    given = shown(as_written(aggregate))
                    raise bad_sql(
                        f"has an aggregate of an aggregate: {given}", inside=place_of(aggregate)
                    )


def _input_columns(read: ReadSelect) -> Iterator[str]:
    if not read.simple:
        relations = frozenset(
            each.alias_or_name.lower() for each in read.tree.find_all(exp.Table, exp.DerivedTable)
        )
        for column in read.tree.find_all(exp.Column):
            yield root_of(without_qualifier(column, relations))
        return
    tree, laterals = read.tree, read.tree.args.get("laterals") or []
    made = {name.name.lower() for each in laterals for name in each.args["alias"].columns}
    where, windows = tree.args.get("where"), tree.args.get("windows") or []
    asked = [*(each.node for each in read.outputs), *read.keys, *laterals, *windows]
    for column in columns_in([*asked, *([where] if where else [])]):
        if root_of(column).lower() not in made:
            yield root_of(column)
    named = made | {each.name.lower() for each in read.outputs}
    for column in columns_in(tree.args[key] for key in _AFTER_OUTPUTS if tree.args.get(key)):
        if root_of(column).lower() not in named:
            yield root_of(column)
    if has_grouping_sets(tree):
        yield from (root_of(each) for each in columns_in([tree.args["group"]]))
