"""What a pipeline declares as gold, as an exported project reads it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from headgate.pipeline import AnyPipeline, GoldQuery, GoldUnion

if TYPE_CHECKING:
    from headgate.query.gold_select import GoldSelect, OutputColumn


def sdp_declarations(pipeline: AnyPipeline) -> dict[str, dict[str, Any]]:
    """By name: what it reads, the columns that it names and gives, and the SQL."""
    return {name: _read(said, pipeline.gold_source) for name, said in pipeline.gold.items()}


def _read(said: GoldQuery | GoldUnion, source: str) -> dict[str, Any]:
    from headgate.query.gold_select import parse_gold
    from headgate.query.union_select import union_select

    if isinstance(said, GoldUnion):
        union = union_select(said)
        return _record(said.from_, union.columns, union.outputs, union.sql(said.from_))
    select = parse_gold(said.sql)
    return _record(source, select.columns, select.outputs, _same_as_headgate(select, source))


def _record(
    reads: str, columns: Iterable[str], outputs: Iterable[OutputColumn], sql: str
) -> dict[str, Any]:
    return {
        "reads": reads,
        "columns": sorted(name.lower() for name in columns),
        "outputs": [output.name for output in outputs],
        "sql": f"{sql}\n",
    }


def _same_as_headgate(select: GoldSelect, source: str) -> str:
    """As it is declared, unless Headgate computes it by other functions: estimates would differ."""
    from headgate.query.incremental import incremental
    from headgate.query.states import Incremental

    how = incremental(select)
    if isinstance(how, Incremental) and any(state.visible is None for state in how.states):
        return how.full_sql(source, extra_keys=())
    return _alone(select.sql)


def _alone(sql: str) -> str:
    """Without the semicolon that may end it, and what stands behind that."""
    from sqlglot.tokenizer_core import TokenType

    from headgate.pipeline.sql.dialect import Verbatim

    for token in Verbatim().tokenize(sql):
        if token.token_type == TokenType.SEMICOLON:
            sql = sql[: token.start]
            break
    return "\n".join(line.rstrip() for line in sql.strip().split("\n"))
