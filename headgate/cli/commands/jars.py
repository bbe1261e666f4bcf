"""`headgate jars`: fetch what Java needs."""

from __future__ import annotations

from typing import Annotated

import typer

from headgate.errors import UsageError

_CONFS = ("spark", "kafka", "registry")


def jars(
    confs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[spark|kafka|registry]...", help="Which ones.", show_default="spark"
        ),
    ] = None,
) -> None:
    """Fetch the jars that are missing.

    \b
      headgate jars spark             what a run needs
      headgate jars kafka registry    what `headgate up` needs, and fetches by itself

    Each jar is checked against its recorded SHA-256 sum.

    Next: headgate doctor
    """
    wanted = confs or ["spark"]
    for conf in wanted:
        if conf not in _CONFS:
            raise UsageError(
                "bad-argument", f"there are no jars for `{conf}`", hint=f"use {', '.join(_CONFS)}"
            )
    from headgate.jars.jars import fetch_jars

    fetch_jars(wanted, print)
