"""The layers of docs/architecture.md: a folder imports only from those above it, without cycles."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

import headgate

PACKAGE = Path(headgate.__file__).parent

LAYERS = [
    {"amounts", "as_json", "errors", "notebook", "reasons"},
    {"jars", "sql"},
    {"config"},
    {"schema"},
    {"registry"},
    {"formats"},
    {"envelopes"},
    {"lake"},
    {"cluster"},
    {"sources"},
    {"engine"},
    {"cdc"},
    {"gold", "quarantine", "serve"},
    {"models"},
    {"catalog", "maintain"},
    {"remove", "run"},
    {"lab"},
    {"inspect"},
    {"workflow"},
    {"run_result"},
    {"pipeline"},
    {"testing"},
    {"cli", "examples"},
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}

OF_EXTRAS = {
    "databricks": {"catalog", "config", "workflow"},
    "fastavro": {"lab", "models"},
    "mlflow": {"models"},
    "psutil": {"lab"},
    "pymysql": {"lab"},
    "pymysqlreplication": {"lab"},
    "sklearn": {"models"},
    "threadpoolctl": {"models"},
    "starlette": {"serve"},
    "uvicorn": {"serve"},
}
"""The folders that import packages of an extra."""
HEAVY = {"pyspark", "deltalake", "duckdb", "confluent_kafka", "pyarrow", "datafusion"}


def _imports(file: Path) -> set[str]:
    """Modules that a file imports, at its top or inside a function."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
    return found


FILES = sorted(path for path in PACKAGE.rglob("*.py") if path.parent != PACKAGE)
MODULES = {
    ".".join(("headgate", *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(
        ".__init__"
    ): path
    for path in PACKAGE.rglob("*.py")
}


def _runtime_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes that are executed, so none under `if TYPE_CHECKING`."""
    yield node
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
            for alternative in child.orelse:
                yield from _runtime_nodes(alternative)
        else:
            yield from _runtime_nodes(child)


def _imported_modules(file: Path) -> set[str]:
    """Modules of the package that a file imports at run time."""
    found: set[str] = set()
    for node in _runtime_nodes(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            submodules = names & MODULES.keys()
            found |= submodules
            if submodules != names:
                found.add(node.module)
    return found & MODULES.keys()


def _cycles(imports: Mapping[str, set[str]]) -> list[set[str]]:
    """Sets of modules that import each other, directly or through others."""
    reachable: dict[str, set[str]] = {}
    for start in imports:
        seen: set[str] = set()
        queue = [*imports[start]]
        while queue:
            module = queue.pop()
            if module not in seen:
                seen.add(module)
                queue += imports[module]
        reachable[start] = seen
    cycles = {
        frozenset(other for other in seen if module in reachable[other])
        for module, seen in reachable.items()
        if module in seen
    }
    return sorted(map(set, cycles), key=sorted)


@pytest.mark.parametrize("folder", sorted({path.relative_to(PACKAGE).parts[0] for path in FILES}))
def test_folder_imports_only_from_its_own_layer_and_those_above(folder: str) -> None:
    for file in (PACKAGE / folder).rglob("*.py"):
        for module in _imports(file):
            parts = module.split(".")
            if parts[0] == "headgate" and len(parts) > 1:
                assert LEVEL[parts[1]] <= LEVEL[folder], f"{file} imports {module}"


def test_cycle_is_found_through_other_modules() -> None:
    imports = {"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set()}
    assert _cycles(imports) == [{"b", "c"}]


def test_no_modules_import_each_other_even_inside_functions() -> None:
    cycles = _cycles({name: _imported_modules(path) for name, path in MODULES.items()})
    assert cycles == []


def test_declarations_need_neither_spark_nor_arrow() -> None:
    for folder in ("config", "sql"):
        for file in (PACKAGE / folder).rglob("*.py"):
            if file != PACKAGE / "sql" / "evaluate.py":
                assert not {module.split(".")[0] for module in _imports(file)} & HEAVY, file


def test_only_the_lake_touches_tables() -> None:
    """The simulators write the tables that a source reads: those are not in the lake."""
    for file in FILES:
        if file.relative_to(PACKAGE).parts[0] not in ("lake", "lab"):
            assert "deltalake" not in {module.split(".")[0] for module in _imports(file)}, file
    for folder in ("cdc", "gold", "quarantine", "engine"):
        # The exported project is a folder beside the lake.
        for file in (PACKAGE / folder).glob("*.py"):
            if file.name != "export.py":
                assert "pathlib" not in _imports(file), file


def test_packages_of_extras_are_imported_only_where_they_belong() -> None:
    for file in FILES:
        for module in _imports(file):
            folders = OF_EXTRAS.get(module.split(".")[0])
            assert folders is None or file.relative_to(PACKAGE).parts[0] in folders, file


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
