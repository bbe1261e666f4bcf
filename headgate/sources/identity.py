"""What a position in a source counts in: a topic or a table by its id.

Offsets and versions start over in a topic or table that is deleted and created again under the same
name, so a position means nothing in the new one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from headgate.errors import SourceError

SourceIds = Mapping[str, str]
"""Ids of topics by name, or of a Delta table. What has no id here is taken for the same."""

_HINT = (
    "run with --from-ledger to land the new one from its beginning, beside what the old one has "
    "landed; to keep the two apart, land the new one with a pipeline that has another name and "
    "lake, or give it a name of its own and declare that in `source`"
)


def replaced(known: SourceIds, present: SourceIds) -> list[str]:
    """Return the names that have another id now."""
    return sorted(name for name in known.keys() & present.keys() if known[name] != present[name])


def source_replaced(names: Collection[str], known: SourceIds, present: SourceIds) -> SourceError:
    """Return the error for topics or a table that were created again."""
    first, *more = names
    others = f" (and {len(more)} more)" if more else ""
    return SourceError(
        "data-lost",
        f"{first}{others} was deleted and created again: positions are known in the one with the "
        f"id {known[first]}, but now there is {present[first]}",
        hint=_HINT,
    )


def topics_left_out(names: Sequence[str]) -> SourceError:
    """Return the error for topics that a pipeline has read, and that its source lacks now."""
    first, *more = names
    others = f" (and {len(more)} more)" if more else ""
    return SourceError(
        "data-lost",
        f"{first}{others} was read up to a position, and is not part of the source any more",
        hint="add it to `source` again, or run with --from-ledger to continue without it",
    )


def in_the_same(position: Any, known: SourceIds, present: SourceIds) -> Any:
    """Return a position without the topics that were created again since."""
    gone = replaced(known, present)
    if not gone or not isinstance(position, dict):
        return position
    return {name: at for name, at in position.items() if name not in gone}
