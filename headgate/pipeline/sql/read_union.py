"""The columns of a union, which are asked for row by row."""

from __future__ import annotations

from functools import lru_cache

from headgate.pipeline.finding import InvalidPipeline
from headgate.pipeline.sql.outputs import Output, read_outputs
from headgate.pipeline.sql.parse import (
    BEFORE_OUTPUTS,
    bad_sql,
    not_too_deep,
    parse_outputs,
    shifted,
)
from headgate.pipeline.sql.refuse import refuse_more_than_rows


@lru_cache(maxsize=256)
@not_too_deep
def read_columns(text: str) -> tuple[Output, ...]:
    """What stands between SELECT and FROM, if a row alone decides it."""
    try:
        expressions = parse_outputs(text)
        refuse_more_than_rows(expressions, changing=True)
        return read_outputs(expressions)
    except InvalidPipeline as error:
        inside = shifted(error.inside, len(BEFORE_OUTPUTS))
        raise bad_sql(error.message, error.hint, inside) from None
