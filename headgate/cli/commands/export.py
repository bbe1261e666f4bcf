"""`headgate export`: what a pipeline declares, for other tools to run."""

from __future__ import annotations

import os
import shutil
import sys
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

from headgate.cli.output import counted, print_next_steps
from headgate.cli.pipeline_argument import PipelineArgument, find_pipeline

app = typer.Typer(rich_markup_mode=None, help="Write gold tables as a project of other tools.")


@app.callback()
def export() -> None:
    """Write gold tables as a project of other tools."""


@app.command()
def sdp(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where to write the project.")],
    pipeline: PipelineArgument = None,
) -> None:
    """Write the gold tables as a project for Spark Declarative Pipelines.

    \b
      headgate export sdp gold_project games.yaml

    `spark-pipelines run` then makes the same gold tables from what has landed, without
    Headgate; new tables need no new export. A second export writes the same files anew and
    leaves all others in the folder as they are.

    Next: headgate graph PIPELINE
    """
    from headgate.config import load_pipeline
    from headgate.gold.export import export_sdp

    written = export_sdp(load_pipeline(find_pipeline(pipeline)), folder)
    print(f"Wrote {counted(len(written.files), 'file')} to {written.folder}")
    has_packages = all(map(find_spec, _OF_SPARK_PIPELINES))
    print_next_steps(
        steps_after(written.folder, shutil.which("spark-pipelines") is not None, has_packages)
    )


_OF_SPARK_PIPELINES = ("grpc_status", "zstandard")
"""Modules that `spark-pipelines` imports and that come neither with Spark nor with Headgate."""


def steps_after(folder: str, on_path: bool, has_packages: bool) -> list[tuple[str, str]]:
    """What makes the tables, as it can be typed here."""
    steps = []
    if not has_packages:
        lacking = quote(f"pyspark[pipelines]=={version('pyspark')}")
        steps.append((f"pip install {lacking}", "once: packages that Spark needs for it"))
    steps.append((f"cd {quote(folder)}", "its README.md says what is where"))
    path = "" if on_path else f"PATH={quote(os.path.dirname(sys.executable))}:$PATH "
    steps.append((f"{path}SPARK_CONF_DIR=conf spark-pipelines run", "make the tables"))
    return steps
