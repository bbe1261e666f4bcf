"""Tables that are derived from those that were landed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Annotated, Literal, TypeAlias

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, ValidationInfo

from headgate.config.model import Declared, Path, refused_at, refused_below
from headgate.config.names import check_table_name
from headgate.errors import InvalidPipeline, did_you_mean, listed, shown

_OPEN = re.compile(r"\{[^{}]*\}|\*|\?|\[[^]]*\]")


def may_share_a_name(one: str, other: str) -> bool:
    """Whether some table may have a name by both; each is a name, a template or a pattern."""
    first, second = _OPEN.split(one), _OPEN.split(other)
    if len(first) == 1:
        return _fits(one, second)
    if len(second) == 1:
        return _fits(other, first)
    short, long = sorted((first[0], second[0]), key=len)
    short_end, long_end = sorted((first[-1], second[-1]), key=len)
    return long.startswith(short) and long_end.endswith(short_end)


def _fits(name: str, parts: list[str]) -> bool:
    return re.fullmatch(".*".join(map(re.escape, parts)), name) is not None


ROUTE = "{route}"


def _check_sql(sql: str) -> str:
    from headgate.sql.select import analyze_select

    analyze_select(sql)
    return sql


def _check_select(select: str) -> str:
    from headgate.sql.select import analyze_columns

    analyze_columns(select)
    return select


def _check_where(where: str) -> str:
    from headgate.sql.rules import parse_condition

    parse_condition(where)
    return where


class GoldQuery(Declared):
    """A SELECT over the landed tables; in the file, its text alone."""

    sql: Annotated[str, AfterValidator(_check_sql)] = Field(
        examples=["SELECT user_name, count(*) AS sessions FROM silver GROUP BY user_name"]
    )
    """The query, in Spark's SQL."""


class GoldUnion(Declared):
    """Rows of many tables in one."""

    model_config = ConfigDict(validate_by_name=True, validate_by_alias=True)

    from_: str = Field(alias="from", examples=["gold_*"])
    """The tables: `silver`, or a pattern of the names of those that other declarations give with
    `{route}`; in change pipelines `merged` instead of `silver`."""

    select: Annotated[str, AfterValidator(_check_select)] = Field(examples=["route, user_name"])
    """The columns, as after SELECT; `route` is known."""

    where: Annotated[str, AfterValidator(_check_where)] | None = None
    """Which rows; all unless it is given."""

    mode: Literal["upsert", "append"] = "upsert"
    """Whether a row takes the place of the one that it was before, or is added to it."""

    def takes(self, table: str) -> bool:
        """Whether a table of that name is one of those that the pattern means."""
        return fnmatchcase(table, self.from_)


def _choose(written: object, info: ValidationInfo) -> object:
    if isinstance(written, str):
        _check_sql(written)
        return GoldQuery(sql=written)
    if isinstance(written, Mapping):
        kind = GoldQuery if "sql" in written else GoldUnion
        return kind.model_validate(written, context=info.context, by_alias=True, by_name=False)
    if isinstance(written, Declared):
        return written
    hint = "write a SELECT, or the keys `from`, `select` and `mode`"
    raise InvalidPipeline("wrong-type", f"needs SQL, not {shown(written)}", hint)


def _check_names(gold: Mapping[str, object]) -> Mapping[str, object]:
    refused: dict[str | int, InvalidPipeline] = {}
    earlier: list[str] = []
    for name in gold:
        try:
            check_table_name(name)
            _refuse_shared(name, earlier)
        except InvalidPipeline as error:
            refused[name] = error
        earlier.append(name)
    if refused:
        raise refused_at(refused)
    return gold


def _refuse_shared(name: str, earlier: Iterable[str]) -> None:
    for other in earlier:
        if may_share_a_name(name, other):
            raise InvalidPipeline(
                "bad-template",
                f"may produce the same table name as {shown(other)}",
                "use a different prefix or suffix",
            )


GoldDeclaration: TypeAlias = Annotated[
    GoldQuery | GoldUnion,
    BeforeValidator(_choose, json_schema_input_type=str | GoldQuery | GoldUnion),
]

GoldTables: TypeAlias = Annotated[Mapping[str, GoldDeclaration], AfterValidator(_check_names)]
"""By name of the table; with `{route}` in it there is one for each table that was landed."""


def check_sources(gold: Mapping[str, GoldQuery | GoldUnion], source: str) -> None:
    """Refuses to derive from what the pipeline does not have."""
    refused: dict[Path, InvalidPipeline] = {}
    for name, declared in gold.items():
        if isinstance(declared, GoldUnion):
            if error := _without_tables(declared.from_, gold, source):
                refused["gold", name, "from"] = error
            continue
        from headgate.sql.select import check_tables

        try:
            check_tables(declared.sql, source)
        except InvalidPipeline as error:
            refused["gold", name] = error
    if refused:
        raise refused_below(refused)


def _without_tables(
    pattern: str, gold: Mapping[str, GoldQuery | GoldUnion], source: str
) -> InvalidPipeline | None:
    """What is wrong with a union that nothing goes into."""
    queries = [name for name, each in gold.items() if isinstance(each, GoldQuery) and ROUTE in name]
    if pattern == source or any(may_share_a_name(pattern, name) for name in queries):
        return None
    known = [source, *(name.replace(ROUTE, "*") for name in queries)]
    hint = did_you_mean(pattern, known) or f"use one of {listed(known)}"
    return InvalidPipeline("bad-value", f"cannot be {shown(pattern)}: it matches no tables", hint)


def check_apart(gold: Iterable[str], others: Mapping[str, str]) -> None:
    """Refuses names that may be those of other tables, given by the key that names them."""
    refused: dict[Path, InvalidPipeline] = {}
    for name in gold:
        for key, other in others.items():
            if may_share_a_name(name, other):
                refused["gold", name] = InvalidPipeline(
                    "bad-template",
                    f"may produce the same table name as `{key}`: {shown(other)}",
                    "use a different prefix or suffix: `gold_{route}_daily`",
                )
    if refused:
        raise refused_below(refused)


def is_declared_gold(gold: Iterable[str], table: str) -> bool:
    """Whether a declaration gives a table that name."""
    return any(re.fullmatch(as_pattern(name), table) for name in gold)


def as_pattern(template: str) -> str:
    """A regular expression of the names that a declaration gives."""
    return re.escape(template).replace(re.escape(ROUTE), ".+")
