"""Evaluates rules on Arrow batches with DataFusion."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import ROUND_HALF_UP, Context, Decimal
from functools import cache, lru_cache
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from headgate.errors import PipelineFileError, shown
from headgate.sql.casts import (
    DECODE,
    JAVA_TEXT,
    PLAIN_NUMBER,
    ROUND,
    Value,
    double_literal,
    null,
    number_literal,
    quoted,
    text_literal,
)
from headgate.sql.patterns import rust_pattern
from headgate.sql.rules import UnusableRule, parse_rule
from headgate.sql.translate import Translation
from headgate.sql.types import (
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    MAX_PRECISION,
    NULL,
    OTHER,
    TEXT,
    TIMESTAMP,
    Type,
    TypeFamily,
    decimal,
    integer,
)

if TYPE_CHECKING:
    from datafusion import Expr, SessionContext

_TABLE = "rows"
_SETTINGS = {
    "datafusion.execution.target_partitions": "1",
    # Rules are planned for each batch. What is left to optimize costs more than it saves, and
    # expressions such as COALESCE grow exponentially when they are nested.
    "datafusion.optimizer.max_passes": "0",
    "datafusion.sql_parser.map_string_types_to_utf8view": "false",
    "datafusion.sql_parser.recursion_limit": "10000",
}


@dataclass(frozen=True)
class Condition:
    """A rule, parsed once for many batches."""

    text: str
    columns: frozenset[str]
    """The columns it reads, without the fields inside of them."""
    expression: exp.Expr = field(repr=False, compare=False)

    @classmethod
    def parse(cls, text: str) -> Condition:
        try:
            return _condition(text)
        except UnusableRule as error:
            message = f"the rule `{text}` cannot be checked: {error}"
            raise PipelineFileError("bad-value", message) from None


@lru_cache(maxsize=1024)
def _condition(text: str) -> Condition:
    expression = parse_rule(text)
    for node in expression.find_all(exp.RegexpLike):
        pattern = rust_pattern(node.expression.name)
        try:
            _engine().constant(f"regexp_like('', {quoted(pattern)})")
        except Exception as error:
            # DataFusion raises nothing more specific; the end of the message says what is wrong.
            why = str(error).rpartition("error: ")[2]
            raise UnusableRule(f"the pattern {shown(node.expression.name)}: {why}") from None
    columns = frozenset(column.parts[0].name for column in expression.find_all(exp.Column))
    return Condition(text, columns, expression)


def evaluate(conditions: tuple[Condition, ...], rows: pa.RecordBatch) -> list[pa.BooleanArray]:
    """Return for each condition whether it is true of each row; null where that is unknown."""
    query = _query(conditions, rows.schema)
    if not len(rows):
        return [pa.array([], pa.bool_()) for _ in conditions]
    batches = query.run(rows)
    return [
        pa.concat_arrays([batch.column(at) for batch in batches]) for at in range(len(conditions))
    ]


@dataclass(frozen=True)
class _Query:
    """Conditions translated for the columns of a schema."""

    places: tuple[int, ...]
    """Indexes of the columns that are read."""
    stages: tuple[tuple[Expr, ...], ...]
    """Projections, each over the result of the one before."""

    def run(self, rows: pa.RecordBatch) -> list[pa.RecordBatch]:
        frame = _engine().read(_numbered(rows, self.places))
        for stage in self.stages:
            frame = frame.select(*stage)
        found: list[pa.RecordBatch] = frame.collect()
        return found


@lru_cache(maxsize=4096)
def _query(conditions: tuple[Condition, ...], schema: pa.Schema) -> _Query:
    wanted = {name.lower() for one in conditions for name in one.columns}
    places = tuple(at for at, name in enumerate(schema.names) if name.lower() in wanted)
    columns: dict[str, Value] = {}
    for number, at in enumerate(places):
        read = Value(f"c{number}", _type_of(schema.types[at]), is_column=True)
        columns.setdefault(schema.names[at], read)
    translation = Translation(_folded, columns=columns)
    outputs = [translation.condition(one.expression) for one in conditions]
    names = [f"c{number}" for number in range(len(places))] or ["c0"]
    no_rows = pa.record_batch([pa.nulls(0, kind) for kind in schema.types], schema=schema)
    frame = _engine().read(_numbered(no_rows, places))
    stages = []
    for name, sql in translation.steps:
        stages.append([*((each, each) for each in names), (name, sql)])
        names.append(name)
    stages.append([(f"r{number}", sql) for number, sql in enumerate(outputs)])
    parsed = []
    for stage in stages:
        expressions = tuple(frame.parse_sql_expr(sql).alias(name) for name, sql in stage)
        frame = frame.select(*expressions)
        parsed.append(expressions)
    return _Query(places, tuple(parsed))


def _numbered(rows: pa.RecordBatch, places: Sequence[int]) -> pa.RecordBatch:
    """Return the columns as `c0`, `c1`, …: their own names may not be valid in SQL."""
    columns = [_unsliced(rows.column(at)) for at in places]
    # A table without columns would have no rows.
    columns = columns or [pa.nulls(len(rows), pa.bool_())]
    return pa.record_batch(columns, [f"c{number}" for number in range(len(columns))])


def _unsliced(values: pa.Array) -> pa.Array:
    """Copy slices of nested values: DataFusion panics on a slice of structs."""
    is_slice = values.offset and values.type.num_fields
    return pa.concat_arrays([values, values[:0]]) if is_slice else values


class _Engine:
    """DataFusion's session in this process.

    With one partition, a plan runs in the thread that collects it: a forked process, which lacks
    the threads of its parent, can go on.
    """

    def __init__(self) -> None:
        # Takes most of a second, and is needed only where there are rules.
        from datafusion import SessionConfig, SessionContext, udf

        self._context: SessionContext = SessionContext(SessionConfig(_SETTINGS))
        self._lock = Lock()
        for name, function, arguments, result in _FUNCTIONS:
            self._context.register_udf(udf(function, arguments, result, "immutable", name=name))

    def read(self, rows: pa.RecordBatch) -> Any:
        with self._lock:
            self._context.deregister_table(_TABLE)
            self._context.register_record_batches(_TABLE, [[rows]])
            return self._context.table(_TABLE)

    def constant(self, sql: str) -> Any:
        (batch,) = self._context.sql(f"SELECT {sql}").collect()
        return batch.column(0)[0].as_py()


@cache
def _engine() -> _Engine:
    return _Engine()


def _folded(value: Value) -> Value:
    """Compute a cast of a literal once instead of in every batch."""
    try:
        found = _engine().constant(value.sql)
    except (OverflowError, ValueError):
        return value  # a time that Python does not have
    match found:
        case None:
            return null(value.type)
        case bool():
            return Value(f"{found}".upper(), value.type)
        case str(text):
            return text_literal(text)
        case float(number) if value.type == DOUBLE:
            return double_literal(number)
        case int(number):
            return Value(
                f"CAST({number_literal(number).sql} AS {value.type.sql})", value.type, number
            )
        case date() | datetime() as time:
            return Value(f"CAST({quoted(str(time))} AS {value.type.sql})", value.type, str(time))
    return value


_TYPES: dict[pa.DataType, Type] = {
    pa.bool_(): BOOLEAN,
    pa.int8(): integer(8),
    pa.int16(): integer(16),
    pa.int32(): integer(32),
    pa.int64(): integer(64),
    pa.float32(): FLOAT,
    pa.float64(): DOUBLE,
    pa.string(): TEXT,
    pa.binary(): BINARY,
    pa.date32(): DATE,
    pa.timestamp("us"): TIMESTAMP,
    pa.null(): NULL,
}


def _type_of(kind: pa.DataType) -> Type:
    types = pa.types
    if kind in _TYPES:
        return _TYPES[kind]
    if types.is_struct(kind):
        fields = tuple((each.name, _type_of(each.type)) for each in kind)
        return Type(TypeFamily.STRUCT, children=fields)
    if types.is_list(kind) or types.is_large_list(kind):
        return Type(TypeFamily.LIST, children=(("item", _type_of(kind.value_type)),))
    if types.is_map(kind):
        key, item = _type_of(kind.key_type), _type_of(kind.item_type)
        return Type(TypeFamily.MAP, children=(("key", key), ("value", item)))
    if types.is_decimal128(kind):
        return decimal(kind.precision, kind.scale)
    if types.is_decimal256(kind) and kind.precision > MAX_PRECISION:
        return decimal(kind.precision, kind.scale)
    return _converted(kind)


def _converted(kind: pa.DataType) -> Type:
    """Return the type of values that Arrow holds in a representation of its own."""
    types = pa.types
    if types.is_dictionary(kind):
        found = _type_of(kind.value_type)
    elif types.is_large_string(kind) or types.is_string_view(kind):
        found = TEXT
    elif types.is_large_binary(kind) or types.is_fixed_size_binary(kind):
        found = BINARY
    elif types.is_timestamp(kind):
        found = TIMESTAMP
    elif types.is_date64(kind):
        found = DATE
    elif types.is_float16(kind):
        found = FLOAT
    elif types.is_unsigned_integer(kind):
        found = decimal(20, 0) if types.is_uint64(kind) else integer(64)
    elif types.is_decimal(kind):
        found = decimal(kind.precision, kind.scale)
    else:
        return OTHER
    return Type(found.kind, found.bits, found.precision, found.scale, converted=True)


_NUMBER = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"
_LONG_FRACTION = r"(\.[0-9]{40})[0-9]+"
"""More digits than any decimal has, which DataFusion would not read."""
_EXACT = Context(prec=400)


def _plain_number(texts: pa.Array) -> pa.Array:
    is_number = pc.match_substring_regex(texts, _NUMBER)
    texts = pc.if_else(is_number, texts, pa.scalar(None, pa.string()))
    has_exponent = pc.match_substring(texts, "e", ignore_case=True)
    if pc.any(has_exponent).as_py():
        texts = _each(texts, _without_exponent)
    return pc.replace_substring_regex(texts, _LONG_FRACTION, r"\1")


def _without_exponent(text: str) -> str | None:
    number = Decimal(text)
    if number and abs(number.adjusted()) > 100:
        return None if number.adjusted() > 0 else "0"
    return f"{number:f}"


def _java_text(numbers: pa.Array, single: pa.Array) -> pa.Array:
    is_single = len(single) > 0 and single[0].as_py()
    return _each(numbers, lambda number: _as_java(number, is_single))


def _as_java(number: float, single: bool) -> str:
    if not math.isfinite(number):
        return "NaN" if math.isnan(number) else ("Infinity" if number > 0 else "-Infinity")
    shortest = str(np.float32(number)) if single else repr(number)
    if number == 0 or 1e-3 <= abs(number) < 1e7:
        plain = f"{Decimal(shortest):f}"
        return plain if "." in plain else f"{plain}.0"
    sign, digits, exponent = Decimal(shortest).normalize().as_tuple()
    text = "".join(map(str, digits))
    power = len(text) - 1 + int(exponent)
    return f"{'-' if sign else ''}{text[0]}.{text[1:] or '0'}E{power}"


def _round(numbers: pa.Array, digits: pa.Array) -> pa.Array:
    if not len(numbers):
        return numbers
    unit = Decimal(1).scaleb(-digits[0].as_py())
    return _each(numbers, lambda number: _rounded(number, unit), pa.float64())


def _rounded(number: float, unit: Decimal) -> float:
    if not math.isfinite(number):
        return number
    steps = _EXACT.divide(Decimal(repr(number)), unit)
    if abs(steps.adjusted()) > 100:
        return number if steps.adjusted() > 0 else 0.0
    return float(_EXACT.multiply(steps.quantize(Decimal(1), ROUND_HALF_UP, _EXACT), unit))


def _decode(values: pa.Array) -> pa.Array:
    return _each(values, lambda value: value.decode("utf-8", "replace"))


def _each(
    values: pa.Array, function: Callable[[Any], Any], kind: pa.DataType | None = None
) -> pa.Array:
    found = [None if value is None else function(value) for value in values.to_pylist()]
    return pa.array(found, kind or pa.string())


_FUNCTIONS = (
    (PLAIN_NUMBER, _plain_number, [pa.string()], pa.string()),
    (JAVA_TEXT, _java_text, [pa.float64(), pa.bool_()], pa.string()),
    (ROUND, _round, [pa.float64(), pa.int64()], pa.float64()),
    (DECODE, _decode, [pa.binary()], pa.string()),
)
"""What DataFusion lacks, as functions of Arrow arrays."""
