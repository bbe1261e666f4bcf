"""Grants on a pipeline's tables: declared, compared with the catalog, granted and revoked.

What is declared belongs to Headgate, even if it existed before. Everything else that Headgate has
not granted belongs to others.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from headgate.amounts import counted
from headgate.catalog.catalog import GrantCatalog, not_in_catalog
from headgate.catalog.open import open_grants
from headgate.catalog.recorded import Recorded
from headgate.config import Catalog, Grant, Granted, PipelineConfig, Principal
from headgate.config.grants import declared_on
from headgate.engine.events import CatalogFailed, Listener, PrivilegesGranted
from headgate.engine.session import pipeline_session
from headgate.errors import CatalogError, CatalogUnavailable, HeadgateError, UsageError
from headgate.lake.choose_committer import choose_committer
from headgate.lake.ledger import Ledger
from headgate.lake.ledger_entries import GrantsEntry
from headgate.notebook import ResultView


@dataclass(frozen=True)
class TableGrants:
    """The privileges on a table: what is declared, compared with what the catalog has."""

    table: str
    kept: tuple[Granted, ...] = ()
    """Declared, and granted."""
    missing: tuple[Granted, ...] = ()
    """Declared, but not granted."""
    obsolete: tuple[Granted, ...] = ()
    """Granted by Headgate, but no longer declared."""
    foreign: tuple[Granted, ...] = ()
    """Granted by others."""
    error: str | None = None
    """Why the catalog did not list them."""

    @classmethod
    def compare(
        cls,
        table: str,
        declared: Collection[Granted],
        found: Collection[Granted],
        recorded: Collection[Granted],
    ) -> TableGrants:
        """Compare what is declared, what the catalog has, and what Headgate has granted."""
        wanted, there, ours = {*declared}, {*found}, {*recorded}
        return cls(
            table,
            kept=_sorted(wanted & there),
            missing=_sorted(wanted - there),
            obsolete=_sorted((there & ours) - wanted),
            foreign=_sorted(there - ours - wanted),
        )

    @property
    def is_as_declared(self) -> bool:
        return not (self.missing or self.obsolete or self.foreign or self.error)

    @property
    def differences(self) -> str:
        """What is not as declared: `+ SELECT to ada, not granted; ~ SELECT to bob, …`."""
        if self.error is not None:
            return self.error
        marked = (
            *(f"+ {one}, not granted" for one in self.missing),
            *(f"- {one}, no longer declared" for one in self.obsolete),
            *(f"~ {one}, granted by others" for one in self.foreign),
        )
        return "; ".join(marked)


@dataclass(frozen=True)
class GrantsPlan(ResultView):
    """What `apply` would change, and what others have granted."""

    pipeline: str
    catalog: str
    tables: tuple[TableGrants, ...]

    @property
    def is_as_declared(self) -> bool:
        return all(one.is_as_declared for one in self.tables)


@dataclass(frozen=True)
class GrantsChanged:
    """What was granted and revoked on a table."""

    table: str
    granted: tuple[Granted, ...] = ()
    revoked: tuple[Granted, ...] = ()
    error: str | None = None
    """Why something else was refused."""

    @property
    def is_empty(self) -> bool:
        return not (self.granted or self.revoked or self.error)


def plan_grants(pipeline: PipelineConfig) -> GrantsPlan:
    """Compare the grants on all registered tables with what is declared."""
    catalog = _catalog(pipeline)
    recorded = Recorded.of(pipeline, catalog)
    tables = sorted(recorded.tables & recorded.registered)
    if not tables:
        return GrantsPlan(pipeline.name, catalog.identity, ())
    with open_grants(lambda: pipeline_session(pipeline), catalog) as opened:
        return GrantsPlan(
            pipeline.name,
            catalog.identity,
            tuple(_plan_table(opened, pipeline, catalog, recorded, table) for table in tables),
        )


def apply_grants(
    pipeline: PipelineConfig,
    exact: bool = False,
    on_table: Callable[[GrantsChanged], None] = lambda _: None,
) -> list[GrantsChanged]:
    """Grant what is missing, and revoke what is no longer declared; return what was changed.

    With `exact`, also revoke what others have granted.
    """
    catalog = _catalog(pipeline)
    recorded = Recorded.of(pipeline, catalog)
    tables = sorted(recorded.tables & recorded.registered)

    def change(opened: GrantCatalog, table: str) -> tuple[GrantsChanged, GrantsEntry | None]:
        plan = _plan_table(opened, pipeline, catalog, recorded, table)
        if plan.error is not None:
            return GrantsChanged(table, error=plan.error), None
        revoked = (*plan.obsolete, *(plan.foreign if exact else ()))
        outcome = _change(opened, plan, revoked)
        return outcome.changed, outcome.entry(catalog, recorded)

    return _change_all(pipeline, catalog, tables, change, on_table)


def granted_by_headgate(
    pipeline: PipelineConfig, principal: str | None = None
) -> Mapping[str, tuple[Granted, ...]]:
    """Return what the ledger has as granted, by table: all, or that of one principal.

    A principal is a name, or a kind and a name: `group:analysts`.
    """
    recorded = Recorded.of(pipeline, _catalog(pipeline))
    found = {
        table: _sorted(one for one in grants if _is_meant(one.principal, principal))
        for table, grants in sorted(recorded.grants.items())
    }
    return {table: grants for table, grants in found.items() if grants}


def revoke_grants(
    pipeline: PipelineConfig,
    principal: str | None = None,
    on_table: Callable[[GrantsChanged], None] = lambda _: None,
) -> list[GrantsChanged]:
    """Revoke what Headgate has granted: all, or that of one principal."""
    catalog = _catalog(pipeline)
    recorded = Recorded.of(pipeline, catalog)
    chosen = granted_by_headgate(pipeline, principal)

    def change(opened: GrantCatalog, table: str) -> tuple[GrantsChanged, GrantsEntry | None]:
        ours = recorded.grants[table]
        try:
            # With its entry, a table has lost its grants.
            found = opened.grants(table) or frozenset()
        except CatalogError as error:
            if _is_of_whole_catalog(error):
                raise
            return GrantsChanged(table, error=error.message), None
        plan = TableGrants(table, kept=_sorted(found & ours))
        outcome = _change(opened, plan, [one for one in chosen[table] if one in found])
        return outcome.changed, outcome.entry(catalog, recorded)

    return _change_all(pipeline, catalog, [*chosen], change, on_table)


class NewGrants:
    """Grants what is declared on tables as they are registered, in a run.

    What was granted before is taken from the ledger. The catalog is asked only about tables that
    lack something.
    """

    def __init__(self, grants: Sequence[Grant], catalog: Catalog, listener: Listener) -> None:
        self._grants = grants
        self._catalog = catalog
        self._listener = listener
        self._given_up: HeadgateError | None = None
        self.waiting: set[str] = set()

    def expect(self, table: str, recorded: Recorded, is_new: bool) -> None:
        """Wait for the grants on a registered table, unless it has them."""
        declared = declared_on(self._grants, table)
        # A new entry has none, whatever the ledger says of an entry that was dropped.
        if declared and (is_new or not declared <= recorded.grants.get(table, frozenset())):
            self.waiting.add(table)

    def grant(self, opened: GrantCatalog, recorded: Recorded) -> Iterator[GrantsEntry]:
        """Yield what is new for the ledger. Tables are done one by one, and stay waiting if the
        catalog does not answer."""
        granted: dict[str, int] = {}
        refused: dict[str, list[str]] = {}
        try:
            for table in sorted(self.waiting):
                outcome = self._grant(opened, recorded, table)
                self.waiting.remove(table)
                if outcome.changed.granted:
                    granted[table] = len(outcome.changed.granted)
                if outcome.changed.error is not None:
                    refused.setdefault(outcome.changed.error, []).append(table)
                if (entry := outcome.entry(self._catalog, recorded)) is not None:
                    yield entry
        finally:
            if granted:
                tables, total = tuple(granted), sum(granted.values())
                self._listener(PrivilegesGranted(self._catalog.name, total, tables))
            for reason, some in refused.items():
                # A missing role is refused on every table, and reported once.
                more = f", also on {counted(len(some) - 1, 'more table')}" if some[1:] else ""
                name = self._catalog.name_of(some[0])
                text = f"not granted{more}: {reason}"
                self._listener(CatalogFailed(name, text, "grant-refused"))

    def give_up(self, error: HeadgateError, recorded: Recorded) -> Iterator[GrantsEntry]:
        """Yield the error for all waiting tables: the catalog has no grants, or no client."""
        if self._given_up is None:
            self._given_up = error
            reason = f"nothing is granted: {error.message}"
            self._listener(CatalogFailed(self._catalog.name, reason, error.code))
        for table in sorted(self.waiting):
            if recorded.grant_errors.get(table) != error.message:
                ours = tuple(map(str, _sorted(recorded.grants.get(table, ()))))
                yield GrantsEntry(table, self._catalog.identity, ours, error.message)
        self.waiting.clear()

    @property
    def given_up(self) -> HeadgateError | None:
        """Why nothing more is granted in this run."""
        return self._given_up

    def _grant(self, opened: GrantCatalog, recorded: Recorded, table: str) -> _Outcome:
        try:
            plan = TableGrants.compare(
                table,
                declared_on(self._grants, table),
                _require_grants(opened, self._catalog, table),
                recorded.grants.get(table, ()),
            )
        except CatalogError as error:
            if _is_of_whole_catalog(error):
                raise
            ours = _sorted(recorded.grants.get(table, ()))
            return _Outcome(GrantsChanged(table, error=error.message), ours)
        return _change(opened, plan, ())


@dataclass(frozen=True)
class _Outcome:
    """What was changed on a table, and what Headgate has granted on it from now on."""

    changed: GrantsChanged
    ours: tuple[Granted, ...]

    def entry(self, catalog: Catalog, recorded: Recorded) -> GrantsEntry | None:
        """Return the row for the ledger, if it says something new."""
        table, error = self.changed.table, self.changed.error
        before = recorded.grants.get(table, frozenset())
        if {*self.ours} == before and recorded.grant_errors.get(table) == error:
            return None
        return GrantsEntry(table, catalog.identity, tuple(map(str, self.ours)), error)


def _plan_table(
    opened: GrantCatalog,
    pipeline: PipelineConfig,
    catalog: Catalog,
    recorded: Recorded,
    table: str,
) -> TableGrants:
    declared = declared_on(pipeline.grants, table)
    try:
        found = _require_grants(opened, catalog, table)
    except CatalogError as error:
        if _is_of_whole_catalog(error):
            raise
        return TableGrants(table, error=error.message)
    return TableGrants.compare(table, declared, found, recorded.grants.get(table, ()))


def _require_grants(opened: GrantCatalog, catalog: Catalog, table: str) -> frozenset[Granted]:
    found = opened.grants(table)
    if found is None:
        raise not_in_catalog(catalog.name_of(table))
    return found


def _is_of_whole_catalog(error: CatalogError) -> bool:
    """Whether it would be the same for every other table."""
    return isinstance(error, CatalogUnavailable) or error.code == "grants-unsupported"


def _change(opened: GrantCatalog, plan: TableGrants, revoked: Iterable[Granted]) -> _Outcome:
    """Grant what is missing, and revoke something; one refusal does not keep from the rest."""
    granted, taken, errors = [], [], []
    for principal, some in _by_principal(plan.missing):
        try:
            _grant(opened, plan.table, principal, some)
        except CatalogUnavailable:
            raise
        except CatalogError as error:
            errors.append(f"{_names(some)} to {principal}: {error.message}")
        else:
            granted += some
    for principal, some in _by_principal(revoked):
        try:
            opened.revoke(plan.table, principal, [one.privilege for one in some])
        except CatalogUnavailable:
            raise
        except CatalogError as error:
            errors.append(f"{_names(some)} from {principal}: {error.message}")
        else:
            taken += some
    ours = ({*plan.kept, *plan.obsolete, *granted}) - {*taken}
    changed = GrantsChanged(plan.table, tuple(granted), tuple(taken), "; ".join(errors) or None)
    return _Outcome(changed, _sorted(ours))


def _grant(
    opened: GrantCatalog, table: str, principal: Principal, missing: Sequence[Granted]
) -> None:
    try:
        opened.grant(table, principal, [one.privilege for one in missing])
    except CatalogUnavailable:
        raise
    except CatalogError:
        if not {*missing} <= (opened.grants(table) or frozenset()):
            raise
        # Another process has granted it meanwhile.


def _change_all(
    pipeline: PipelineConfig,
    catalog: Catalog,
    tables: Sequence[str],
    change: Callable[[GrantCatalog, str], tuple[GrantsChanged, GrantsEntry | None]],
    on_table: Callable[[GrantsChanged], None],
) -> list[GrantsChanged]:
    """Change one table after the other, and record what was done, even if the last one fails."""
    if not tables:
        return []
    done: list[GrantsChanged] = []
    entries: list[GrantsEntry] = []
    try:
        with open_grants(lambda: pipeline_session(pipeline), catalog) as opened:
            for table in tables:
                changed, entry = change(opened, table)
                entries += [] if entry is None else [entry]
                if not changed.is_empty:
                    done.append(changed)
                    on_table(changed)
    finally:
        _record(pipeline, entries)
    return done


def _record(pipeline: PipelineConfig, entries: Sequence[GrantsEntry]) -> None:
    if not entries:
        return
    committer = choose_committer(pipeline.commit, lambda: pipeline_session(pipeline), pipeline.lake)
    ledger = Ledger(pipeline.lake, pipeline.ledger, pipeline.name, committer)
    ledger.add(ledger.landed() or 0, entries)


def _catalog(pipeline: PipelineConfig) -> Catalog:
    if pipeline.catalog is None:
        raise UsageError(
            "bad-argument",
            f"{pipeline.name} has no catalog, so that there is nothing to grant",
            hint="add `catalog` and `grants` to the pipeline file",
        )
    return pipeline.catalog


def _is_meant(principal: Principal, wanted: str | None) -> bool:
    return wanted is None or wanted in (principal.name, str(principal))


def _by_principal(grants: Iterable[Granted]) -> Iterator[tuple[Principal, list[Granted]]]:
    for principal, some in groupby(_sorted(grants), lambda one: one.principal):
        yield principal, [*some]


def _sorted(grants: Iterable[Granted]) -> tuple[Granted, ...]:
    return tuple(sorted(grants, key=lambda one: (str(one.principal), one.privilege)))


def _names(grants: Sequence[Granted]) -> str:
    return ", ".join(one.privilege for one in grants)
