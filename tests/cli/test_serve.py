from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote
from urllib.request import Request, urlopen

import pytest

from tests.cli.conftest import Headgate
from tests.inspect.small_lake import SmallLake

_WITHOUT_EXTRA = """
import sys
for name in ("starlette", "uvicorn"):
    sys.modules[name] = None
from headgate.cli.main import run_command
sys.exit(run_command(sys.argv[1:]))
"""


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SmallLake:
    monkeypatch.chdir(tmp_path)
    lake = SmallLake(tmp_path)
    lake.register(1, versions=[1])
    lake.land(3, bad_share=0)
    return lake


def test_ctrl_c_ends_streams_and_the_command(
    lake: SmallLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QUERY_TOKEN", "s3cret")
    command = [sys.executable, "-m", "headgate", "serve", "--port", "0"]
    serve = subprocess.Popen(
        [*command, "--token-env", "QUERY_TOKEN"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert serve.stdout is not None
    try:
        url = next(word for word in serve.stdout.readline().split() if word.startswith("http:"))
        sql = quote("SELECT user_name FROM chess EMIT CHANGES")
        bearer = {"Authorization": "Bearer s3cret"}
        with urlopen(Request(f"{url}/query?sql={sql}", headers=bearer)) as stream:
            lines = [stream.readline() for _ in range(16)]
            serve.send_signal(signal.SIGINT)
            lines += stream.readlines()
        printed, errors = serve.communicate(timeout=30)
    finally:
        serve.kill()
    data = [json.loads(line[6:]) for line in lines if line.startswith(b"data: ")]
    assert data[0] == {"columns": ["user_name"]}
    assert [one["op"] for one in data[1:]] == ["insert"] * 3
    assert (serve.returncode, errors) == (0, "")
    assert "s3cret" not in printed


def test_address_of_other_machines_needs_a_token(headgate: Headgate, lake: SmallLake) -> None:
    printed = headgate("serve", "--host", "0.0.0.0")
    assert (printed.code, printed.out) == (2, "")
    assert "--token-env" in printed.err
    printed = headgate("serve", "--host", "0.0.0.0", "--token-env", "NOT_SET")
    assert printed.code == 2
    assert "NOT_SET" in printed.err


def test_missing_packages_are_named_with_the_extra(lake: SmallLake) -> None:
    run = subprocess.run(
        [sys.executable, "-c", _WITHOUT_EXTRA, "serve"], capture_output=True, text=True, check=False
    )
    assert (run.returncode, run.stdout) == (1, "")
    assert "[extra-missing]" in run.stderr
    assert 'hint: pip install "headgate[serve]"' in run.stderr
