"""Every check of `headgate doctor`, in the order in which they matter."""

from __future__ import annotations

from pathlib import Path

from headgate.inspect.check import Check, fail, ok, tried
from headgate.inspect.check_machine import check_machine
from headgate.inspect.check_services import check_services
from headgate.inspect.find_mistakes import find_mistakes
from headgate.pipeline import ChangePipeline, Pipeline, load_pipeline


def check_all(pipeline_file: str | None, services_folder: Path) -> list[Check]:
    """This machine and, if one is given, the pipeline."""
    pipeline = None
    if pipeline_file is None:
        lake = Path.cwd()
    else:
        file_check = tried("pipeline file", lambda: _file(pipeline_file))
        pipeline = load_pipeline(pipeline_file) if file_check.state == "ok" else None
        lake = Path(pipeline.lake) if pipeline else Path.cwd()
    checks = [*check_machine(lake), *check_services(services_folder)]
    if pipeline_file is not None:
        checks.append(file_check)
    return checks + _check_pipeline(pipeline) if pipeline else checks


def _check_pipeline(pipeline: Pipeline | ChangePipeline) -> list[Check]:
    # Here, because a machine can be checked without the libraries that these need.
    from headgate.inspect.check_lake import check_lake
    from headgate.inspect.check_source import check_source

    return [*check_source(pipeline), *check_lake(pipeline)]


def _file(path: str) -> Check:
    mistakes = find_mistakes(path)
    if not mistakes:
        return ok("pipeline file", f"{path} is valid")
    first = mistakes[0]
    more = f" and {len(mistakes) - 1} more" if len(mistakes) > 1 else ""
    detail = f"{first.where}: {first.message} [{first.code}]{more}"
    return fail("pipeline file", detail, f"headgate check {path}")
