"""The layers of docs/design.md: each may use those above it, never those below."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import headgate

PACKAGE = Path(headgate.__file__).parent

LAYERS = [
    {"errors"},
    {"pipeline"},
    {"route", "schema", "envelope", "quarantine", "query"},
    {"source", "land", "change", "gold", "replay", "run", "local", "simulate"},
    {"inspect"},
    {"cli", "examples"},
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}

HEAVY = {"pyspark", "deltalake", "confluent_kafka", "pyarrow"}


def _imports(file: Path) -> set[str]:
    """Modules that a file names in an import, wherever it stands."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
    return found


FILES = sorted(path for path in PACKAGE.rglob("*.py") if path.parent != PACKAGE)


@pytest.mark.parametrize("file", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_module_imports_only_from_its_own_layer_and_those_above(file: Path) -> None:
    mine = LEVEL[file.relative_to(PACKAGE).parts[0]]
    for module in _imports(file):
        parts = module.split(".")
        if parts[0] == "headgate" and len(parts) > 1:
            assert LEVEL[parts[1]] <= mine, f"{file.name} imports {module}"


@pytest.mark.parametrize("file", sorted((PACKAGE / "pipeline").glob("*.py")), ids=lambda p: p.name)
def test_declarations_need_neither_spark_nor_arrow(file: Path) -> None:
    assert not {module.split(".")[0] for module in _imports(file)} & HEAVY


def test_public_names_are_few_sorted_and_there() -> None:
    assert headgate.__all__ == sorted(headgate.__all__)
    assert len(headgate.__all__) <= 15
    for name in headgate.__all__:
        assert getattr(headgate, name) is not None
