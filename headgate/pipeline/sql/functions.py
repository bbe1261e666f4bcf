"""What Spark's functions are, as far as it matters here: aggregates, and calls that are refused."""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp
from sqlglot.dialects.spark import Spark

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
CHANGING = frozenset(_CHANGING.split())
"""They give another value when they are asked again for the same row."""

RUNS_CODE = frozenset(["java_method", "reflect", "try_reflect"])

_AROUND_A_CALL = (exp.Filter, exp.IgnoreNulls, exp.RespectNulls, exp.WithinGroup)


def name_of_call(node: exp.Expr) -> str | None:
    """The function that is called, in small letters."""
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
    """Whether Spark has such a function; others are somebody's own, perhaps an aggregate."""
    return name in AGGREGATES or name.upper() in Spark.Parser.FUNCTIONS


def innermost_call(node: exp.Expr) -> exp.Expr:
    """The call itself, without FILTER and the like around it."""
    while isinstance(node, _AROUND_A_CALL):
        node = node.this
    return node


def is_aggregate(node: exp.Expr) -> bool:
    return name_of_call(innermost_call(node)) in AGGREGATES


def aggregates_in(node: exp.Expr) -> Iterator[exp.Expr]:
    """The outermost aggregates, not those of windows and of queries inside."""
    if is_aggregate(node):
        yield node
    elif not isinstance(node, exp.Window | exp.Query):
        for child in node.iter_expressions():
            yield from aggregates_in(child)


def calls_in(node: exp.Expr, names: frozenset[str]) -> Iterator[exp.Expr]:
    for each in node.walk():
        if name_of_call(each) in names:
            yield each
