"""Writes what a pipeline declares as gold as a project for Spark Declarative Pipelines."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from headgate.config import GoldQuery, GoldUnion, Pipeline
from headgate.errors import UsageError
from headgate.jars.jars import locked_jars

if TYPE_CHECKING:
    from headgate.sql.gold_select import GoldSelect, OutputColumn


def sdp_declarations(pipeline: Pipeline) -> dict[str, dict[str, Any]]:
    """By name: what it reads, the columns that it names and gives, and the SQL."""
    return {name: _read(said, pipeline.gold_source) for name, said in pipeline.gold.items()}


def _read(said: GoldQuery | GoldUnion, source: str) -> dict[str, Any]:
    from headgate.gold.declared import union_select
    from headgate.sql.gold_select import parse_gold

    if isinstance(said, GoldUnion):
        union = union_select(said)
        return _record(said.from_, union.columns, union.outputs, union.sql(said.from_))
    select = parse_gold(said.sql)
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
    """As it is declared, unless Headgate computes it by other functions: estimates would differ."""
    from headgate.sql.incremental import Incremental, incremental

    how = incremental(select)
    if isinstance(how, Incremental) and any(state.visible is None for state in how.states):
        return how.full_sql(source, extra_keys=())
    return _alone(select.sql)


def _alone(sql: str) -> str:
    """Without the semicolon that may end it, and what stands behind that."""
    from sqlglot.tokenizer_core import TokenType

    from headgate.sql.parse import Verbatim

    for token in Verbatim().tokenize(sql):
        if token.token_type == TokenType.SEMICOLON:
            sql = sql[: token.start]
            break
    return "\n".join(line.rstrip() for line in sql.strip().split("\n"))


_SPEC = "spark-pipeline.yml"
_MARK = "# Written by `headgate export sdp`, which overwrites it.\n"
_AS_THEY_ARE = (
    "README.md",
    "conf/log4j2.properties",
    "conf/spark-defaults.conf",
    "conf/spark-env.sh",
    "transformations/headgate_gold.py",
)
"""Files that are the same in every project, but for `@words@` of the pipeline."""


@dataclass(frozen=True)
class Exported:
    """A project, and the files of it that were written."""

    folder: str
    files: tuple[str, ...]


def export_sdp(pipeline: Pipeline, folder: str | os.PathLike[str]) -> Exported:
    """Files that an export wrote before are written anew; all others stay as they are."""
    place = Path(folder)
    if not pipeline.gold:
        raise UsageError(
            "bad-argument",
            f"the pipeline {pipeline.name} declares no gold tables",
            hint="declare some in `gold` in the pipeline file",
            where=pipeline.file,
        )
    _refuse_others(place, pipeline)
    texts = project_files(pipeline)
    try:
        for name, text in texts.items():
            target = place / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, "utf-8")
    except OSError as error:
        said = f"{place} cannot be written: {error.strerror}"
        raise UsageError("bad-argument", said, hint="name another folder") from None
    return Exported(str(place), tuple(texts))


def project_files(pipeline: Pipeline) -> dict[str, str]:
    """The files of the project by their paths in it."""
    ours = files("headgate.gold").joinpath("sdp_project")
    words = {
        "@name@": pipeline.name,
        "@declared@": "\n".join(f"- `{name}`" for name in pipeline.gold),
        "@example@": min(pipeline.gold, key=lambda name: "{route}" in name),
        "@packages@": delta_package(),
        "@state@": _state(pipeline),
    }
    return {
        **{
            name: _filled_in(ours.joinpath(name).read_text("utf-8"), words) for name in _AS_THEY_ARE
        },
        _SPEC: _MARK + _yaml(_specification(pipeline)),
        "gold.yml": _MARK + _yaml(_project(pipeline)),
    }


def delta_package() -> str:
    """Delta Lake as `spark-submit --packages` names it: the one that Headgate runs with."""
    (found,) = (jar for jar in locked_jars("spark") if jar.name.startswith("delta-spark_"))
    return f"{found.organisation}:{found.name}:{found.revision}"


def _refuse_others(place: Path, pipeline: Pipeline) -> None:
    """A folder has to be new, empty, or the project of the same pipeline."""
    if not place.exists() or (place.is_dir() and not any(place.iterdir())):
        return
    try:
        text = (place / _SPEC).read_text("utf-8")
    except OSError:
        text = ""
    if text.startswith(f"{_MARK}name: {_name(pipeline)}\n"):
        return
    what = "the project of another pipeline" if text.startswith(_MARK) else "something else"
    raise UsageError(
        "already-exists",
        f"{place} already exists and is {what}",
        hint="name a folder that does not exist yet",
    )


def _filled_in(text: str, words: Mapping[str, str]) -> str:
    for word, meant in words.items():
        text = text.replace(word, meant)
    return text


def _specification(pipeline: Pipeline) -> dict[str, Any]:
    return {
        "name": _name(pipeline),
        "storage": f"file://{_state(pipeline)}/storage",
        "catalog": "spark_catalog",
        "database": "default",
        "libraries": [{"glob": {"include": "transformations/**"}}],
    }


def _name(pipeline: Pipeline) -> str:
    return f"{pipeline.name}_gold"


def _project(pipeline: Pipeline) -> dict[str, Any]:
    return {
        "pipeline": pipeline.name,
        "lake": _lake(pipeline),
        "ledger": pipeline.ledger,
        "source": pipeline.gold_source,
        # Merged tables have no other name for their routes than their own.
        "template": pipeline.silver if not pipeline.lands_changes else None,
        "gold": sdp_declarations(pipeline),
    }


def _state(pipeline: Pipeline) -> str:
    """Where runs of the project keep what they make: in the lake, wherever the project is."""
    return f"{_lake(pipeline)}/_sdp/{pipeline.name}"


def _lake(pipeline: Pipeline) -> str:
    """The lake as a plain path."""
    lake = pipeline.lake
    path = lake.split(":", 1)[1] if lake.lower().startswith("file:/") else lake
    return os.path.normpath(f"/{path.lstrip('/')}")


class _Dumper(yaml.SafeDumper):
    """Writes SQL as people do: over several lines."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def _yaml(document: Mapping[str, Any]) -> str:
    text: str = yaml.dump(dict(document), Dumper=_Dumper, sort_keys=False, width=100)
    return text
