"""Grants: who gets which privileges on the tables of a pipeline, in its catalog."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Annotated, Literal, TypeAlias, cast

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo

from headgate.config.catalog import Catalog
from headgate.config.gold import names_may_collide
from headgate.config.model import ConfigModel, OneOf, Path, invalid_at, invalid_at_paths
from headgate.errors import InvalidPipeline, did_you_mean, listed, shown

HIVE_PRIVILEGES = ("SELECT", "INSERT", "UPDATE", "DELETE", "ALL")
"""Privileges on tables in a Hive metastore."""

UNITY_PRIVILEGES = ("SELECT", "MODIFY", "ALL PRIVILEGES")
"""Privileges on tables in Unity Catalog that make sense for a pipeline's tables."""

PrincipalKind: TypeAlias = Literal["user", "group", "role"]

_KINDS = ("user", "group", "role")
_MAX_NAME = 255
_MAX_HIVE_NAME = 128
_PATTERN = re.compile(r"[a-z0-9_*]+")


def _check_principal(name: str) -> str:
    if not name or name != name.strip() or not name.isprintable() or len(name) > _MAX_NAME:
        hint = f"up to {_MAX_NAME} printable characters, without spaces around them"
        raise InvalidPipeline("bad-value", f"cannot be {shown(name)}", hint)
    return name


PrincipalName = Annotated[str, AfterValidator(_check_principal)]


@dataclass(frozen=True)
class Principal:
    """A user, group or role. Only a Hive metastore distinguishes them, so only there is a kind."""

    name: str
    kind: PrincipalKind | None = None

    def __str__(self) -> str:
        return self.name if self.kind is None else f"{self.kind}:{self.name}"


@dataclass(frozen=True)
class Granted:
    """A privilege that a principal has on a table."""

    principal: Principal
    privilege: str

    def __str__(self) -> str:
        return f"{self.privilege} to {self.principal}"

    @classmethod
    def parse(cls, text: str) -> Granted:
        """Return the value of its text, which is how the ledger has it."""
        privilege, _, principal = text.partition(" to ")
        kind, _, name = principal.partition(":")
        if name and kind in _KINDS:
            return cls(Principal(name, cast(PrincipalKind, kind)), privilege)
        return cls(Principal(principal), privilege)


class PrincipalKeys(OneOf):
    """The kinds of principals of a Hive metastore."""

    user: PrincipalName | None = None
    """Name of a user."""

    group: PrincipalName | None = None
    """Name of a group."""

    role: PrincipalName | None = None
    """Name of a role."""


def _principal(given: object, info: ValidationInfo) -> object:
    if isinstance(given, Principal):
        _check_principal(given.name)
        return given
    if isinstance(given, str):
        _check_plain(given)
        return Principal(_check_principal(given))
    chosen = PrincipalKeys.model_validate(given, context=info.context)
    kind, name = next((kind, name) for kind, name in chosen if name is not None)
    return Principal(name, cast(PrincipalKind, kind))


def _check_plain(given: str) -> None:
    """Refuse `group:analysts`, which is how a principal with a kind is shown."""
    kind, colon, name = given.partition(":")
    if colon and kind in _KINDS:
        hint = f"write `to: {{{kind}: {name.strip() or 'analysts'}}}`"
        raise InvalidPipeline("bad-value", f"cannot be {shown(given)}", hint)


def _as_list(given: object) -> object:
    return [given] if isinstance(given, str) else given


def _check_tables(patterns: tuple[str, ...]) -> tuple[str, ...]:
    if not patterns:
        raise InvalidPipeline("bad-value", "is empty", "leave it out to grant on all tables")
    wrong = [pattern for pattern in patterns if not _PATTERN.fullmatch(pattern)]
    if wrong:
        hint = "patterns have lowercase letters, digits, `_` and `*`: `gold_*`"
        raise InvalidPipeline("bad-value", f"cannot be {shown(wrong[0])}", hint)
    return patterns


def _normal(privileges: tuple[str, ...]) -> tuple[str, ...]:
    """Return privileges as a catalog spells them; which are known depends on the catalog."""
    if not privileges:
        raise InvalidPipeline("bad-value", "is empty", "for example `privileges: SELECT`")
    words = (" ".join(one.replace("_", " ").upper().split()) for one in privileges)
    return tuple(dict.fromkeys(words))


class Grant(ConfigModel):
    """Privileges that a principal gets on tables of the pipeline."""

    to: Annotated[
        Principal, BeforeValidator(_principal, json_schema_input_type=str | PrincipalKeys)
    ] = Field(examples=["analysts", {"group": "analysts"}])
    """User, group or service principal, by name. A Hive metastore distinguishes their kinds: there
    it is `{user: NAME}`, `{group: NAME}` or `{role: NAME}`."""

    tables: Annotated[
        tuple[str, ...],
        BeforeValidator(_as_list, json_schema_input_type=str | list[str]),
        AfterValidator(_check_tables),
    ] = Field(default=("*",), examples=["gold_*", ["gold_*", "silver_chess"]])
    """Tables by name or pattern: one, or a list. Defaults to all tables of the pipeline."""

    privileges: Annotated[
        tuple[str, ...],
        BeforeValidator(_as_list, json_schema_input_type=str | list[str]),
        AfterValidator(_normal),
    ] = Field(default=("SELECT",), examples=["SELECT", ["SELECT", "MODIFY"]])
    """One privilege, or a list: `SELECT`, `MODIFY` and `ALL PRIVILEGES`; in a Hive metastore
    `SELECT`, `INSERT`, `UPDATE`, `DELETE` and `ALL`."""

    def covers(self, table: str) -> bool:
        return any(fnmatchcase(table, pattern) for pattern in self.tables)


Grants: TypeAlias = tuple[Grant, ...]


def declared_on(grants: Iterable[Grant], table: str) -> frozenset[Granted]:
    """Return what is declared for a table."""
    return frozenset(
        Granted(grant.to, privilege)
        for grant in grants
        if grant.covers(table)
        for privilege in grant.privileges
    )


def check_grants(grants: Sequence[Grant], catalog: Catalog | None, tables: Sequence[str]) -> None:
    """Raise unless grants fit the catalog, and every pattern the names of the pipeline's tables."""
    if not grants:
        return
    if catalog is None:
        message = "has no effect without `catalog`"
        hint = "tables are granted where they are registered: `catalog: {name: games, in: main}`"
        raise invalid_at({"grants": InvalidPipeline("bad-value", message, hint)})
    errors: dict[Path, InvalidPipeline] = {}
    for index, grant in enumerate(grants):
        if error := _misfit(grant.to, catalog):
            errors["grants", index, "to"] = error
        if error := _unknown_privilege(grant, catalog):
            errors["grants", index, "privileges"] = error
        if error := _unknown_tables(grant, tables):
            errors["grants", index, "tables"] = error
    if errors:
        raise invalid_at_paths(errors)


def _misfit(principal: Principal, catalog: Catalog) -> InvalidPipeline | None:
    name = principal.name
    if catalog.is_hive and principal.kind is None:
        hint = f"write `to: {{group: {name}}}`, or `user` or `role`"
        message = "needs a kind: a Hive metastore distinguishes users, groups and roles"
        return InvalidPipeline("bad-value", message, hint)
    if catalog.is_hive and len(name) > _MAX_HIVE_NAME:
        message = f"is longer than {_MAX_HIVE_NAME} characters, the limit of a Hive metastore"
        return InvalidPipeline("bad-value", message)
    if not catalog.is_hive and principal.kind is not None:
        message = f"cannot have a kind: {catalog.in_} knows principals by name alone"
        return InvalidPipeline("bad-value", message, f"write `to: {name}`")
    return None


def _unknown_privilege(grant: Grant, catalog: Catalog) -> InvalidPipeline | None:
    known = HIVE_PRIVILEGES if catalog.is_hive else UNITY_PRIVILEGES
    for privilege in grant.privileges:
        if privilege not in known:
            hint = did_you_mean(privilege, known) or f"use one of {listed(known)}"
            return InvalidPipeline("bad-choice", f"cannot be {shown(privilege)}", hint)
    return None


def _unknown_tables(grant: Grant, tables: Sequence[str]) -> InvalidPipeline | None:
    known = [re.sub(r"\{[^{}]*\}", "*", each) for each in tables]
    for pattern in grant.tables:
        if not any(names_may_collide(pattern, each) for each in known):
            hint = did_you_mean(pattern, known) or f"tables are called {listed(known)}"
            message = f"cannot be {shown(pattern)}: no table of the pipeline has such a name"
            return InvalidPipeline("bad-value", message, hint)
    return None
