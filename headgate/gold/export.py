"""Export of the gold declarations as a project for Spark Declarative Pipelines."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from headgate.config import GoldQuery, GoldUnion, PipelineConfig
from headgate.errors import UsageError
from headgate.jars.jars import locked_jars

if TYPE_CHECKING:
    from headgate.sql.gold_select import GoldSelect, OutputColumn


def sdp_declarations(pipeline: PipelineConfig) -> dict[str, dict[str, Any]]:
    """Return, by name, what a declaration reads, its input and output columns, and its SQL."""
    return {
        name: _declaration(declared, pipeline.gold_source)
        for name, declared in pipeline.gold.items()
    }


def _declaration(declared: GoldQuery | GoldUnion, source: str) -> dict[str, Any]:
    from headgate.gold.declared import union_select
    from headgate.sql.gold_select import parse_gold

    if isinstance(declared, GoldUnion):
        union = union_select(declared)
        return _record(declared.from_, union.columns, union.outputs, union.sql(declared.from_))
    select = parse_gold(declared.sql)
    return _record(source, select.columns, select.outputs, _same_as_headgate(select, source))


def _record(
    reads: str, columns: Iterable[str], outputs: Iterable[OutputColumn], sql: str
) -> dict[str, Any]:
    return {
        "reads": reads,
        "columns": sorted(name.lower() for name in columns),
        "outputs": [output.name for output in outputs],
        "sql": f"{sql}\n",
    }


def _same_as_headgate(select: GoldSelect, source: str) -> str:
    """Return the SQL as declared, or as Headgate computes it, so that estimates do not differ."""
    from headgate.sql.incremental import Incremental, incremental

    states = incremental(select)
    if isinstance(states, Incremental) and any(one.visible is None for one in states.states):
        return states.full_sql(source, extra_keys=())
    return _without_semicolon(select.sql)


def _without_semicolon(sql: str) -> str:
    """Remove a final semicolon and what follows it."""
    from sqlglot.tokenizer_core import TokenType

    from headgate.sql.parse import Verbatim

    for token in Verbatim().tokenize(sql):
        if token.token_type == TokenType.SEMICOLON:
            sql = sql[: token.start]
            break
    return "\n".join(line.rstrip() for line in sql.strip().split("\n"))


_SPEC = "spark-pipeline.yml"
_MARK = "# Written by `headgate export sdp`, which overwrites it.\n"
_TEMPLATES = (
    "README.md",
    "conf/log4j2.properties",
    "conf/spark-defaults.conf",
    "conf/spark-env.sh",
    "transformations/headgate_gold.py",
)
"""Files that are copied into every project, with `@variables@` filled in."""


@dataclass(frozen=True)
class Exported:
    """A written project and its files."""

    folder: str
    files: tuple[str, ...]


def export_sdp(pipeline: PipelineConfig, folder: str | os.PathLike[str]) -> Exported:
    """Write the project. Files of an earlier export are overwritten, all others are kept."""
    target = Path(folder)
    if not pipeline.gold:
        raise UsageError(
            "bad-argument",
            f"the pipeline {pipeline.name} declares no gold tables",
            hint="declare some in `gold` in the pipeline file",
            where=pipeline.file,
        )
    _check_target(target, pipeline)
    texts = project_files(pipeline)
    try:
        for name, text in texts.items():
            path = target / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
    except OSError as error:
        message = f"{target} cannot be written: {error.strerror}"
        raise UsageError("bad-argument", message, hint="name another folder") from None
    return Exported(str(target), tuple(texts))


def project_files(pipeline: PipelineConfig) -> dict[str, str]:
    """Return the content of the project's files by relative path."""
    templates = files("headgate.gold").joinpath("sdp_project")
    variables = {
        "@name@": pipeline.name,
        "@declared@": "\n".join(f"- `{name}`" for name in pipeline.gold),
        "@example@": min(pipeline.gold, key=lambda name: "{route}" in name),
        "@packages@": delta_package(),
        "@state@": _state(pipeline),
    }
    return {
        **{
            name: _render(templates.joinpath(name).read_text("utf-8"), variables)
            for name in _TEMPLATES
        },
        _SPEC: _MARK + _yaml(_specification(pipeline)),
        "gold.yml": _MARK + _yaml(_project(pipeline)),
    }


def delta_package() -> str:
    """Return the Maven coordinates of the Delta Lake version that Headgate uses."""
    (found,) = (jar for jar in locked_jars("spark") if jar.name.startswith("delta-spark_"))
    return f"{found.organisation}:{found.name}:{found.revision}"


def _check_target(target: Path, pipeline: PipelineConfig) -> None:
    """Raise unless the folder is new, empty, or a project of the same pipeline."""
    if not target.exists() or (target.is_dir() and not any(target.iterdir())):
        return
    try:
        text = (target / _SPEC).read_text("utf-8")
    except OSError:
        text = ""
    if text.startswith(f"{_MARK}name: {_name(pipeline)}\n"):
        return
    what = "the project of another pipeline" if text.startswith(_MARK) else "something else"
    raise UsageError(
        "already-exists",
        f"{target} already exists and is {what}",
        hint="name a folder that does not exist yet",
    )


def _render(text: str, variables: Mapping[str, str]) -> str:
    for variable, value in variables.items():
        text = text.replace(variable, value)
    return text


def _specification(pipeline: PipelineConfig) -> dict[str, Any]:
    return {
        "name": _name(pipeline),
        "storage": f"file://{_state(pipeline)}/storage",
        "catalog": "spark_catalog",
        "database": "default",
        "libraries": [{"glob": {"include": "transformations/**"}}],
    }


def _name(pipeline: PipelineConfig) -> str:
    return f"{pipeline.name}_gold"


def _project(pipeline: PipelineConfig) -> dict[str, Any]:
    return {
        "pipeline": pipeline.name,
        "lake": _lake(pipeline),
        "ledger": pipeline.ledger,
        "source": pipeline.gold_source,
        # A merged table is its own route.
        "template": pipeline.silver if not pipeline.lands_changes else None,
        "gold": sdp_declarations(pipeline),
    }


def _state(pipeline: PipelineConfig) -> str:
    """Return the folder of the project's tables and catalog, which is inside the lake."""
    return f"{_lake(pipeline)}/_sdp/{pipeline.name}"


def _lake(pipeline: PipelineConfig) -> str:
    """Return the lake as a plain path."""
    lake = pipeline.lake
    path = lake.split(":", 1)[1] if lake.lower().startswith("file:/") else lake
    return os.path.normpath(f"/{path.lstrip('/')}")


class _Dumper(yaml.SafeDumper):
    """Writes SQL as block text over several lines."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def _yaml(document: Mapping[str, Any]) -> str:
    text: str = yaml.dump(dict(document), Dumper=_Dumper, sort_keys=False, width=100)
    return text
