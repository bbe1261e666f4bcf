from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Headgate

_CHATTER = """
import os, sys
from headgate.cli.pipeline_argument import quiet_spark
with quiet_spark():
    os.write(2, b"WARNING: Using incubator modules: jdk.incubator.vector\\n")
    os.write(2, b"Setting default log level to \\"OFF\\".\\n")
    os.write(2, b"spark ERROR something that matters\\n")
    print("said inside", file=sys.stderr)
    import time
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and not os.path.exists(sys.argv[1]):
        time.sleep(0.01)
print("said after", file=sys.stderr)
os.write(2, b"and by others\\n")
"""


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--trigger", "often"], "--trigger: `often` is not a duration"),
        (["--progress", "loud"], "unknown progress `loud`"),
    ],
)
def test_run_refuses_what_it_cannot_use(headgate: Headgate, words: list[str], said: str) -> None:
    headgate("init", "games-embedded")
    printed = headgate("run", *words)
    assert (printed.code, said in printed.err) == (2, True)


def test_run_of_a_broken_pipeline_starts_nothing(headgate: Headgate, tmp_path: Path) -> None:
    (tmp_path / "games.yaml").write_text("name: games\n")
    printed = headgate("run", "games.yaml")
    assert (printed.code, printed.out) == (1, "")
    assert "[missing-key]" in printed.err


def test_chatter_of_the_jvm_is_not_shown_but_the_rest_is(tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    run = subprocess.Popen(
        [sys.executable, "-c", _CHATTER, str(seen)], stderr=subprocess.PIPE, text=True
    )
    assert run.stderr is not None
    inside = {run.stderr.readline(), run.stderr.readline()}
    seen.touch()
    rest = run.stderr.read()
    run.stderr.close()
    assert run.wait() == 0
    assert inside == {"spark ERROR something that matters\n", "said inside\n"}
    assert rest == "said after\nand by others\n"
