"""Gold tables: queries and unions over the landed tables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Annotated, Literal, TypeAlias

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, ValidationInfo

from headgate.config.model import ConfigModel, Path, invalid_at, invalid_at_paths
from headgate.config.names import check_table_name
from headgate.errors import InvalidPipeline, did_you_mean, listed, shown

_OPEN = re.compile(r"\{[^{}]*\}|\*|\?|\[[^]]*\]")


def names_may_collide(one: str, other: str) -> bool:
    """Whether both may produce the same name; each is a name, a template or a pattern."""
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


class GoldQuery(ConfigModel):
    """A SELECT over the landed tables; the file may have just its text."""

    sql: Annotated[str, AfterValidator(_check_sql)] = Field(
        examples=["SELECT user_name, count(*) AS sessions FROM silver GROUP BY user_name"]
    )
    """The query, in Spark SQL."""


class GoldUnion(ConfigModel):
    """A union of the rows of many tables."""

    model_config = ConfigDict(validate_by_name=True, validate_by_alias=True)

    from_: str = Field(alias="from", examples=["gold_*"])
    """Tables to read: `silver` (`merged` in a pipeline of change files), or a name pattern of gold
    tables declared with `{route}`."""

    select: Annotated[str, AfterValidator(_check_select)] = Field(examples=["route, user_name"])
    """Output columns, as after SELECT. `route` is available as a column."""

    where: Annotated[str, AfterValidator(_check_where)] | None = None
    """Filter condition. Defaults to all rows."""

    mode: Literal["upsert", "append"] = "upsert"
    """`upsert` replaces the rows of a source that has changed; `append` only adds new rows."""

    def takes(self, table: str) -> bool:
        """Whether a table name matches the pattern."""
        return fnmatchcase(table, self.from_)


def _choose(written: object, info: ValidationInfo) -> object:
    if isinstance(written, str):
        _check_sql(written)
        return GoldQuery(sql=written)
    if isinstance(written, Mapping):
        kind = GoldQuery if "sql" in written else GoldUnion
        return kind.model_validate(written, context=info.context, by_alias=True, by_name=False)
    if isinstance(written, ConfigModel):
        return written
    hint = "write a SELECT, or the keys `from`, `select` and `mode`"
    raise InvalidPipeline("wrong-type", f"needs SQL, not {shown(written)}", hint)


def _check_names(gold: Mapping[str, object]) -> Mapping[str, object]:
    errors: dict[str | int, InvalidPipeline] = {}
    earlier: list[str] = []
    for name in gold:
        try:
            check_table_name(name)
            _reject_shared_name(name, earlier)
        except InvalidPipeline as error:
            errors[name] = error
        earlier.append(name)
    if errors:
        raise invalid_at(errors)
    return gold


def _reject_shared_name(name: str, earlier: Iterable[str]) -> None:
    for other in earlier:
        if names_may_collide(name, other):
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
"""Declarations by table name; with `{route}` in the name, one table per landed table."""


def check_sources(gold: Mapping[str, GoldQuery | GoldUnion], source: str) -> None:
    """Raise if a declaration reads a table that the pipeline does not have."""
    errors: dict[Path, InvalidPipeline] = {}
    for name, declared in gold.items():
        if isinstance(declared, GoldUnion):
            if error := _no_tables_error(declared.from_, gold, source):
                errors["gold", name, "from"] = error
            continue
        from headgate.sql.select import check_tables

        try:
            check_tables(declared.sql, source)
        except InvalidPipeline as error:
            errors["gold", name] = error
    if errors:
        raise invalid_at_paths(errors)


def _no_tables_error(
    pattern: str, gold: Mapping[str, GoldQuery | GoldUnion], source: str
) -> InvalidPipeline | None:
    """Return the error for a union that matches no tables."""
    queries = [name for name, each in gold.items() if isinstance(each, GoldQuery) and ROUTE in name]
    if pattern == source or any(names_may_collide(pattern, name) for name in queries):
        return None
    known = [source, *(name.replace(ROUTE, "*") for name in queries)]
    hint = did_you_mean(pattern, known) or f"use one of {listed(known)}"
    return InvalidPipeline("bad-value", f"cannot be {shown(pattern)}: it matches no tables", hint)


def check_names_are_free(gold: Iterable[str], others: Mapping[str, str]) -> None:
    """Raise if a gold table may have the name of another table; `others` are by their key."""
    errors: dict[Path, InvalidPipeline] = {}
    for name in gold:
        for key, other in others.items():
            if names_may_collide(name, other):
                errors["gold", name] = InvalidPipeline(
                    "bad-template",
                    f"may produce the same table name as `{key}`: {shown(other)}",
                    "use a different prefix or suffix: `gold_{route}_daily`",
                )
    if errors:
        raise invalid_at_paths(errors)


def is_declared_gold(gold: Iterable[str], table: str) -> bool:
    """Whether a declaration produces a table of that name."""
    return any(re.fullmatch(as_pattern(name), table) for name in gold)


def as_pattern(template: str) -> str:
    """Return a regular expression for the names that a declaration produces."""
    return re.escape(template).replace(re.escape(ROUTE), ".+")
