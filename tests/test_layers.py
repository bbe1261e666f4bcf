"""The layers of docs/architecture.md: a folder imports only from those above it, never below."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import headgate

PACKAGE = Path(headgate.__file__).parent

LAYERS = [
    {"amounts", "errors", "notebook", "reasons"},
    {"jars", "sql"},
    {"config"},
    {"schema"},
    {"registry"},
    {"formats"},
    {"envelopes"},
    {"lake"},
    {"sources"},
    {"engine"},
    {"cdc", "gold", "quarantine", "run"},
    {"lab"},
    {"inspect"},
    {"cli", "examples", "pipeline"},
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}

LAB_ONLY = {"fastavro", "psutil", "pymysql", "pymysqlreplication"}
HEAVY = {"pyspark", "deltalake", "confluent_kafka", "pyarrow", "datafusion"}


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


@pytest.mark.parametrize("folder", sorted({path.relative_to(PACKAGE).parts[0] for path in FILES}))
def test_folder_imports_only_from_its_own_layer_and_those_above(folder: str) -> None:
    for file in (PACKAGE / folder).rglob("*.py"):
        for module in _imports(file):
            parts = module.split(".")
            if parts[0] == "headgate" and len(parts) > 1:
                assert LEVEL[parts[1]] <= LEVEL[folder], f"{file} imports {module}"


def test_declarations_need_neither_spark_nor_arrow() -> None:
    for folder in ("config", "sql"):
        for file in (PACKAGE / folder).rglob("*.py"):
            if file != PACKAGE / "sql" / "evaluate.py":
                assert not {module.split(".")[0] for module in _imports(file)} & HEAVY, file


def test_only_lab_imports_the_packages_of_its_extra() -> None:
    for file in FILES:
        if file.relative_to(PACKAGE).parts[0] != "lab":
            assert not {module.split(".")[0] for module in _imports(file)} & LAB_ONLY, file


def test_modules_import_only_from_their_own_layer_and_those_above() -> None:
    for file in PACKAGE.glob("*.py"):
        if file.stem in LEVEL:
            for module in _imports(file):
                parts = module.split(".")
                if parts[0] == "headgate" and len(parts) > 1:
                    assert LEVEL[parts[1]] <= LEVEL[file.stem], f"{file} imports {module}"


def test_public_names_are_sorted_and_exist() -> None:
    assert headgate.__all__ == sorted(headgate.__all__)
    for name in headgate.__all__:
        assert getattr(headgate, name) is not None
