"""`headgate jars`: download the jars that Spark and local services need."""

from __future__ import annotations

from typing import Annotated

import typer

from headgate.errors import UsageError

_CONFS = ("spark", "s3", "kafka", "registry")


def jars(
    confs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[spark|s3|kafka|registry]...", help="Groups of jars.", show_default="spark"
        ),
    ] = None,
) -> None:
    """Download missing jars.

    \b
      headgate jars spark             jars for headgate run
      headgate jars s3                jars for a lake or source in S3
      headgate jars kafka registry    jars for headgate up, which also downloads them itself

    Each jar is verified against its recorded SHA-256 checksum. With those of Spark comes an archive
    of its classes (200 MB), with which it starts in half the time.

    Next: headgate doctor
    """
    wanted = confs or ["spark"]
    for conf in wanted:
        if conf not in _CONFS:
            raise UsageError(
                "bad-argument", f"unknown group of jars `{conf}`", hint=f"use {', '.join(_CONFS)}"
            )
    from headgate.jars.jars import fetch_jars

    fetch_jars(wanted, print)
    if "spark" in wanted:
        from headgate.jars.class_archive import build_archive

        build_archive(print)
