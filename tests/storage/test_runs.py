"""Whole runs with a lake in an object store; `tests/cluster` has a smaller one."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from headgate.lab.object_store import ObjectStore


@pytest.mark.soak
def test_tables_are_the_same_as_in_a_folder(
    storage: ObjectStore, new_lake: Callable[[], str], tmp_path: Path
) -> None:
    keys = storage.settings
    assert keys.access_key is not None
    assert keys.secret_key is not None
    arguments = [tmp_path, new_lake(), keys.endpoint, keys.access_key.name, keys.secret_key.name]
    run = subprocess.run(
        [sys.executable, "-m", "tests.storage.land_twice", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout
    assert run.stdout.count("tables are the same") == 3
    for secret in (keys.access_key, keys.secret_key):
        assert secret.resolve() not in run.stdout


def test_kernel_appends_in_an_object_store(
    storage: ObjectStore, new_lake: Callable[[], str]
) -> None:
    keys = storage.settings
    assert keys.access_key is not None
    assert keys.secret_key is not None
    arguments = [new_lake(), keys.endpoint, keys.access_key.name, keys.secret_key.name]
    run = subprocess.run(
        [sys.executable, "-m", "tests.storage.append_with_kernel", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout
    assert run.stdout.splitlines()[-1] == "[[1, 0], [3, 2]]"
