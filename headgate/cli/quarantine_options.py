"""The options that say which records in quarantine are meant."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from headgate.errors import UsageError

if TYPE_CHECKING:
    from headgate.quarantine.quarantine_filter import QuarantineFilter

ReasonOption = Annotated[
    str | None, typer.Option("--reason", metavar="REASON", help="Only those with this reason.")
]
RouteOption = Annotated[
    str | None,
    typer.Option("--route", "--table", metavar="ROUTE", help="Only those of this route or table."),
]
SinceOption = Annotated[
    str | None,
    typer.Option(
        "--since",
        metavar="TIME",
        help="Only those put in quarantine since then: 2026-11-01 or '2026-11-01 12:00', in UTC.",
    ),
]
UntilOption = Annotated[
    str | None,
    typer.Option("--until", metavar="TIME", help="Only those put in quarantine before then."),
]
OffsetOption = Annotated[
    str | None,
    typer.Option(
        "--offset",
        metavar="OFFSETS",
        help="Only these: topic:partition:offset, or topic:partition:from-to.",
    ),
]


FileOption = Annotated[
    str | None,
    typer.Option(
        "--file", metavar="PATH", help="Only those of this change file: its path, or the end of it."
    ),
]


def wanted_records(
    reason: str | None,
    route: str | None,
    since: str | None,
    until: str | None,
    offset: str | None,
    in_file: str | None = None,
) -> QuarantineFilter:
    from headgate.quarantine.quarantine_filter import OffsetRange, QuarantineFilter

    if reason is not None:
        _require_reason(reason)
    return QuarantineFilter(
        reason=reason,
        route=route,
        since=_moment("--since", since),
        until=_moment("--until", until),
        offsets=None if offset is None else OffsetRange.parse(offset),
        file=in_file,
    )


def _moment(option: str, text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(
            "bad-argument",
            f"{option}: `{text}` is no time",
            hint="write it like 2026-11-01, '2026-11-01 12:00' or 2026-11-01T12:00+01:00",
        ) from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _require_reason(reason: str) -> None:
    from headgate.pipeline.wording import did_you_mean, listed
    from headgate.quarantine.reason import Reason

    known = [each.value for each in Reason]
    if reason not in known:
        hint = did_you_mean(reason, known) or f"there are {listed(known)}"
        raise UsageError("bad-argument", f"there is no reason `{reason}`", hint=hint)
