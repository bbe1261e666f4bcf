"""Documentation that cannot drift: generated pages are up to date, and the README runs."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import headgate
from headgate.lab.services import down
from tests.run.conftest import places

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def _generated() -> dict[str, str]:
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    pages: dict[str, str] = module.pages()
    return pages


def test_reference_pages_are_what_the_code_says() -> None:
    for name, page in _generated().items():
        assert (ROOT / "docs" / "reference" / name).read_text() == page, "run `make docs`"


def test_links_between_pages_lead_somewhere() -> None:
    for page in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]:
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_versions_agree() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert headgate.__version__ == declared


def block(language: str, containing: str, page: str = README) -> str:
    blocks = re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)
    (block,) = [one for one in blocks if containing in one]
    return str(block)


@pytest.fixture
def environment() -> dict[str, str]:
    """The commands of this environment first on the PATH, as after activating it."""
    folder = Path(sys.executable).parent
    return {**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}


@pytest.mark.parametrize(
    ("tables", "records"), [(20, 5_000), pytest.param(250, 200_000, marks=pytest.mark.soak)]
)
def test_readme_commands_land_every_record(
    tmp_path: Path, environment: dict[str, str], tables: int, records: int
) -> None:
    commands = block("sh", "headgate up")
    for written, wanted in (("--tables 250", tables), ("--records 200000", records)):
        assert written in commands
        commands = commands.replace(written, f"{written.split()[0]} {wanted}")
    try:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", commands],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=800,
        )
        assert done.returncode == 0, done.stderr
    finally:
        down(tmp_path / ".headgate")
    lake = str(tmp_path / "lake")
    assert len([*Path(lake).glob("silver_*")]) == tables
    assert places(lake).total() == records
    assert set(places(lake).values()) == {1}


def _run(command: list[str], folder: Path, environment: dict[str, str]) -> str:
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=500
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_testing_guide_passes(tmp_path: Path, environment: dict[str, str]) -> None:
    page = (ROOT / "docs" / "guides" / "testing.md").read_text()
    (tmp_path / "games.yaml").write_text(block("yaml", "name: games", page))
    (tmp_path / "test_games.py").write_text(block("python", "import pytest", page))
    printed = _run([sys.executable, "-m", "pytest", "-q"], tmp_path, environment)
    assert "4 passed" in printed
    assert not (tmp_path / "lake").exists()


def test_guide_to_simulated_sources_runs(tmp_path: Path, environment: dict[str, str]) -> None:
    page = (ROOT / "docs" / "guides" / "simulate.md").read_text()
    script = block("python", "PizzaPlan(", page)
    printed = _run([sys.executable, "-c", script], tmp_path, environment)
    assert " minutes on average" in printed
    assert "two pizzas of store 3 would take " in printed


def test_architecture_names_every_folder_and_module_at_the_root() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    package = ROOT / "headgate"
    folders = {f"{path.parent.name}/" for path in package.glob("*/__init__.py")}
    modules = {path.name for path in package.glob("*.py") if not path.name.startswith("__")}
    assert [name for name in sorted(folders | modules) if f"`{name}`" not in page] == []
