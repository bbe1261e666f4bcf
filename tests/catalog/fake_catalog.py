"""A catalog in memory, for tests that need no server."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from headgate.config import Granted, Principal
from headgate.errors import CatalogError, CatalogUnavailable


@dataclass
class FakeCatalog:
    """A catalog in memory that counts the calls."""

    entries: dict[str, str] = field(default_factory=dict)
    granted: dict[str, set[Granted]] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)
    dropped: set[str] = field(default_factory=set)
    is_down: bool = False
    calls: list[str] = field(default_factory=list)

    @contextmanager
    def open(self) -> Iterator[FakeCatalog]:
        self._called("open")
        yield self

    def tables(self) -> set[str]:
        self._called("tables")
        return {*self.entries}

    def location(self, table: str) -> str | None:
        self._called(f"location {table}")
        return self.entries.get(table)

    def register(self, table: str, location: str) -> None:
        self._called(f"register {table}")
        if table in self.refused or table in self.entries:
            raise CatalogError("catalog-refused", f"{table} is refused")
        self.entries[table] = location

    def drop(self, table: str) -> None:
        del self.entries[table]

    def grants(self, table: str) -> frozenset[Granted] | None:
        self._called(f"grants {table}")
        if table in self.dropped:
            return None
        return frozenset(self.granted.get(table, ()))

    def grant(self, table: str, principal: Principal, privileges: Sequence[str]) -> None:
        self._called(f"grant {table} {principal}")
        if str(principal) in self.refused:
            raise CatalogError("grant-refused", f"{principal} is unknown")
        some = {Granted(principal, privilege) for privilege in privileges}
        self.granted.setdefault(table, set()).update(some)

    def revoke(self, table: str, principal: Principal, privileges: Sequence[str]) -> None:
        self._called(f"revoke {table} {principal}")
        self.granted[table] -= {Granted(principal, privilege) for privilege in privileges}

    def _called(self, call: str) -> None:
        self.calls.append(call)
        if self.is_down:
            raise CatalogUnavailable("catalog-unavailable", "no answer")
