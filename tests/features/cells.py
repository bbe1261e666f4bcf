"""The matrix: every operation of the product on a table with every feature of Delta."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from deltalake.exceptions import DeltaError
from pyspark.sql import SparkSession

from headgate.errors import HeadgateError
from headgate.lake.storage import find_files
from tests.features.operations import (
    GOLD,
    OPERATIONS,
    Cell,
    FeatureLake,
    Refused,
    make_lake,
    writer,
)
from tests.features.tables import FEATURES, make_again

_DELTA_CODE = re.compile(r"\b(DELTA_[A-Z_]+)")


class Impossible(Exception):
    """Raised for a table that Delta does not make."""


class Matrix:
    """Makes tables with features, each once, and tries operations on copies of them."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self._folder = folder
        self._impossible: dict[tuple[str, str, bool], Impossible] = {}
        self._copies = 0

    def outcome(self, feature: str, operation: str) -> str:
        """Return who has written it, or that it was refused before anything was; raise if wrong."""
        wanted = OPERATIONS[operation]
        made = self._with_feature(feature, wanted.table, wanted.keyed)
        self._copies += 1
        folder = self._folder / f"cell-{self._copies}"
        shutil.copytree(made, folder)
        lake = FeatureLake(folder, self._spark, wanted.keyed)
        cell = Cell(lake, self._spark, FEATURES[feature], wanted.table)
        table = str(lake.path / wanted.table)
        before = _files(table)
        try:
            wanted.do(cell)
        except (Refused, HeadgateError, DeltaError) as error:
            if changed := before ^ _files(table):
                raise AssertionError(f"changed {sorted(changed)}, then: {error}") from error
            return _code(error)
        else:
            return writer(lake.path / cell.checked) if cell.checked else "yes"
        finally:
            shutil.rmtree(folder)

    def _with_feature(self, feature: str, table: str, keyed: bool) -> Path:
        folder = self._folder / f"{feature}-{table}-{keyed}"
        known = feature, table, keyed
        if known in self._impossible:
            raise self._impossible[known]
        if not folder.exists():
            shutil.copytree(self._plain(keyed, derived=table == GOLD), folder)
            try:
                make_again(self._spark, folder / "lake" / table, FEATURES[feature])
            except Exception as error:
                self._impossible[known] = Impossible(str(error).splitlines()[0])
                raise self._impossible[known] from error
        return folder

    def _plain(self, keyed: bool, derived: bool) -> Path:
        """Return a lake whose tables have no features."""
        folder = self._folder / f"plain-{keyed}-{derived}"
        if not folder.exists():
            make_lake(folder, keyed)
            if derived:
                FeatureLake(folder, self._spark, keyed).pipeline.refresh(GOLD)
        return folder


def _files(table: str) -> set[tuple[str, int]]:
    """Return what is committed: the entries of the log, and the files that it had before."""
    return {(file.path, file.size) for file in find_files(table) if file.path.endswith(".json")}


def _code(error: Exception) -> str:
    """Return the code of an error, which may be one of Delta; an error without one is wrong."""
    code = getattr(error, "code", None)
    found = _DELTA_CODE.search(str(error))
    if code is None and found is None:
        raise AssertionError(f"an error without a code: {error}") from error
    return str(code or (found and found[1]))
