"""`headgate export`: write gold declarations as a project for another tool."""

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

from headgate.amounts import counted
from headgate.cli.help import GroupedOptions
from headgate.cli.output import print_next_steps
from headgate.cli.pipeline_argument import PipelineArgument, find_pipeline

app = typer.Typer(rich_markup_mode=None, help="Export gold tables as a project for another tool.")


@app.callback()
def export() -> None:
    """Export gold tables as a project for another tool."""


@app.command(cls=GroupedOptions)
def sdp(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of the project.")],
    pipeline: PipelineArgument = None,
) -> None:
    """Export gold tables as a project for Spark Declarative Pipelines.

    \b
    Examples:
      headgate export sdp gold_project games.yaml

    `spark-pipelines run` then builds the same gold tables from the landed ones, without
    Headgate. New tables need no new export. Exporting again overwrites the exported files and
    keeps all others in the folder.

    Next: headgate graph PIPELINE
    """
    from headgate.config import load_pipeline
    from headgate.gold.export import export_sdp

    written = export_sdp(load_pipeline(find_pipeline(pipeline)), folder)
    print(f"Wrote {counted(len(written.files), 'file')} to {written.folder}")
    has_packages = all(map(find_spec, _SPARK_PIPELINES_MODULES))
    print_next_steps(
        steps_after(written.folder, shutil.which("spark-pipelines") is not None, has_packages)
    )


_SPARK_PIPELINES_MODULES = ("grpc_status", "zstandard")
"""Modules that `spark-pipelines` imports but neither Spark nor Headgate installs."""


def steps_after(folder: str, on_path: bool, has_packages: bool) -> list[tuple[str, str]]:
    """Return the commands that build the tables, as they can be typed here."""
    steps = []
    if not has_packages:
        requirement = quote(f"pyspark[pipelines]=={version('pyspark')}")
        steps.append((f"pip install {requirement}", "once: packages that spark-pipelines needs"))
    steps.append((f"cd {quote(folder)}", "its README.md explains the files"))
    path = "" if on_path else f"PATH={quote(os.path.dirname(sys.executable))}:$PATH "
    steps.append((f"{path}SPARK_CONF_DIR=conf spark-pipelines run", "build the tables"))
    return steps
