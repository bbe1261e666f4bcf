"""Calls, aggregates and columns inside of an expression."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from sqlglot import exp
from sqlglot.dialects.spark import Spark

from headgate.errors import shown
from headgate.sql.parse import as_written, bad_sql, position

_AGGREGATES = """
    any any_value approx_count_distinct approx_percentile approx_top_k approx_top_k_accumulate
    approx_top_k_combine array_agg avg bit_and bit_or bit_xor bitmap_and_agg bitmap_construct_agg
    bitmap_or_agg bool_and bool_or collect_list collect_set corr count count_if count_min_sketch
    covar_pop covar_samp every first first_value grouping grouping_id histogram_numeric
    hll_sketch_agg hll_union_agg kll_sketch_agg_bigint kll_sketch_agg_double kll_sketch_agg_float
    kurtosis last last_value listagg max max_by mean measure median min min_by mode percentile
    percentile_approx percentile_cont percentile_disc product regr_avgx regr_avgy regr_count
    regr_intercept regr_r2 regr_slope regr_sxx regr_sxy regr_syy schema_of_variant_agg skewness some
    std stddev stddev_pop stddev_samp string_agg sum theta_intersection_agg theta_sketch_agg
    theta_union_agg try_avg try_sum var_pop var_samp variance
"""


AGGREGATES = frozenset(_AGGREGATES.split())


_CHANGING = """
    curdate current_date current_time current_timestamp input_file_name localtimestamp
    monotonically_increasing_id now rand randn random randstr shuffle spark_partition_id uniform
    uuid
"""


NONDETERMINISTIC = frozenset(_CHANGING.split())
"""Functions that return another value when they are called again for the same row."""


RUNS_CODE = frozenset(["java_method", "reflect", "try_reflect"])


_CALL_MODIFIERS = (exp.Filter, exp.IgnoreNulls, exp.RespectNulls, exp.WithinGroup)


def call_name(node: exp.Expr) -> str | None:
    """Return the name of the called function, in lower case."""
    match node:
        case exp.Anonymous():
            return node.name.lower()
        case exp.Any() if not node.find(exp.Query):
            return "any"
        case exp.CurrentDate():
            return "current_date"
        case exp.CurrentTimestamp() | exp.CurrentDatetime():
            return "current_timestamp"
    return None


def is_known(name: str) -> bool:
    """Return whether Spark has the function; others are user-defined, perhaps aggregates."""
    return name in AGGREGATES or name.upper() in Spark.Parser.FUNCTIONS


def innermost_call(node: exp.Expr) -> exp.Expr:
    """Return the call without FILTER and similar clauses around it."""
    while isinstance(node, _CALL_MODIFIERS):
        node = node.this
    return node


def is_aggregate(node: exp.Expr) -> bool:
    return call_name(innermost_call(node)) in AGGREGATES


def aggregates_in(node: exp.Expr) -> Iterator[exp.Expr]:
    """Yield the outermost aggregates, without those of windows and subqueries."""
    if is_aggregate(node):
        yield node
    elif not isinstance(node, exp.Window | exp.Query):
        for child in node.iter_expressions():
            yield from aggregates_in(child)


def calls_in(node: exp.Expr, names: frozenset[str]) -> Iterator[exp.Expr]:
    for each in node.walk():
        if call_name(each) in names:
            yield each


def refuse_unsafe(tree: exp.Expr) -> None:
    """Raise if the SQL has parameters, which have no values, or runs programs."""
    for parameter in tree.find_all(exp.Placeholder, exp.Parameter):
        hint = "write the value itself; names of tables and columns are the same for every route"
        raise bad_sql(f"has a parameter: {shown(as_written(parameter))}", hint, position(parameter))
    if program := next(tree.find_all(exp.QueryTransform), None):
        raise bad_sql("runs a program with TRANSFORM", inside=position(program))
    for call in calls_in(tree, RUNS_CODE):
        raise bad_sql(f"calls Java code: {shown(as_written(call))}", inside=position(call))


def refuse_beyond_row(trees: Iterable[exp.Expr], *, changing: bool = False) -> None:
    """Raise if an expression needs more than one row; `changing` allows nondeterministic ones."""
    for tree in trees:
        refuse_unsafe(tree)
        for node in tree.walk():
            if kind := _row_violation(node):
                raise bad_sql(f"has {kind}: {shown(as_written(node))}", _ROW_HINT, position(node))
        for call in calls_in(tree, NONDETERMINISTIC) if not changing else ():
            hint = "the same row has to give the same result every time"
            raise bad_sql(f"depends on {shown(as_written(call))}", hint, position(call))


_ROW_HINT = "it is evaluated for each row by itself"


def _row_violation(node: exp.Expr) -> str | None:
    match node:
        case exp.Window():
            return "a window function"
        case exp.Query():
            return "a subquery"
        case _ if is_aggregate(node):
            return "an aggregate"
    return None


_PARTS = ("this", "table", "db", "catalog")


_QUALIFIED = "qualified"


def root_name(column: exp.Column) -> str:
    """Return the name of the column that a field is in: `a` of `a.b`."""
    return column.parts[0].name


def columns_in(nodes: Iterable[exp.Expr]) -> Iterator[exp.Column]:
    for node in nodes:
        yield from node.find_all(exp.Column, bfs=False)


def distinct_names(names: Iterable[str]) -> frozenset[str]:
    """Return each name once, as it is first written: Spark ignores the case of names."""
    found: dict[str, str] = {}
    for name in names:
        found.setdefault(name.lower(), name)
    return frozenset(found.values())


def without_qualifier(column: exp.Column, qualifiers: frozenset[str]) -> exp.Column:
    """Return `user_name` for `silver.user_name`."""
    parts = column.parts
    if len(parts) == 1 or parts[0].name.lower() not in qualifiers:
        return column
    bare = column_of(parts[1:])
    bare.meta[_QUALIFIED] = True
    return bare


def column_of(parts: Sequence[exp.Expr]) -> exp.Column:
    return exp.Column(**dict(zip(_PARTS, reversed(parts), strict=False)))


def enclosing_columns(column: exp.Column) -> Iterator[tuple[exp.Column, list[exp.Expr]]]:
    """Yield the columns and fields around a field, each with the path from there to it."""
    parts = [each.copy() for each in column.parts]
    for length in range(1, len(parts)):
        yield column_of(parts[:length]), parts[length:]


def is_qualified(column: exp.Column) -> bool:
    """Return whether it was written with the name of its table, and so is not an output."""
    return bool(column.meta.get(_QUALIFIED))
