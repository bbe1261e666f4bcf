from __future__ import annotations

import json
import os
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headgate.config import InvalidPipeline, Kafka, Secret, Security, load_pipeline, secret_sources
from headgate.config.secrets import read_setting, task_secrets
from headgate.errors import HeadgateError, PipelineFileError, SetupError
from tests.config.secret_services import Workspace, databricks_workspace, install_plug_in

CANARY = "hunter2hunter2"
VAULT = f"""\
import os, sys
calls = []
def read(reference):
    calls.append(reference)
    path, _, field = reference.partition("#")
    if field == "exit":
        sys.exit("{CANARY}")
    if field == "nothing":
        return None
    if field == "bytes":
        return b"{CANARY}"
    return {{"kv/games#password": os.environ.get("VAULT_HAS", "{CANARY}")}}[reference]
"""
PIPELINE = """\
name: games
source: {kafka: {servers: "localhost:1", topics: [games], security: {
  protocol: SASL_PLAINTEXT, mechanism: PLAIN, username: "vault:kv/games#user",
  password: "vault:kv/games#password"}}}
registry: ./schemas
envelope: confluent
lake: ./lake
spark: {spark.acme.thing: "vault:kv/games#thing", spark.acme.url: "http://vault:9092"}
"""


@pytest.fixture(autouse=True)
def _sources_of_this_test(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    secret_sources.sources.cache_clear()
    monkeypatch.setattr(secret_sources, "_kept", {})
    yield
    secret_sources.sources.cache_clear()
    for module in ("acme_vault", "hvac"):
        sys.modules.pop(module, None)


@pytest.fixture
def vault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    site = install_plug_in(tmp_path, "vault", VAULT)
    monkeypatch.syspath_prepend(site)
    return site


@pytest.fixture
def workspace(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Workspace]:
    monkeypatch.setenv("HOME", str(tmp_path))  # The SDK also reads a file there.
    with databricks_workspace({"games/kafka-password": CANARY}) as found:
        for name, value in found.login.items():
            monkeypatch.setenv(name, value)
        yield found


def calls() -> list[str]:
    return list(sys.modules["acme_vault"].calls)


@pytest.mark.usefixtures("vault")
def test_plug_in_reads_what_follows_its_scheme() -> None:
    assert Secret.parse("vault:kv/games#password").resolve() == CANARY
    assert calls() == ["kv/games#password"]


@pytest.mark.usefixtures("vault")
def test_reference_of_a_plug_in_is_one_wherever_a_reference_may_be(
    write: Callable[[str], Path],
) -> None:
    pipeline = load_pipeline(write(PIPELINE))
    assert isinstance(pipeline.source, Kafka)
    assert pipeline.source.security is not None
    assert pipeline.source.security.username == Secret("vault", "kv/games#user")
    assert pipeline.source.security.password == Secret("vault", "kv/games#password")
    assert pipeline.spark["spark.acme.thing"] == Secret("vault", "kv/games#thing")
    assert pipeline.spark["spark.acme.url"] == "http://vault:9092"
    assert "acme_vault" not in sys.modules


HVAC = """\
class Client:
    secrets = kv = v2 = property(lambda self: self)
    def read_secret_version(self, path, mount_point):
        return {"data": {"data": {"password": f"{mount_point}, {path}"}}}
"""


def test_plug_in_of_the_guide_reads_a_field(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    guide = (Path(__file__).parents[2] / "docs" / "guides" / "security.md").read_text()
    code = guide.split("```python\n")[1].split("```")[0]
    (tmp_path / "hvac.py").write_text(HVAC)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.syspath_prepend(install_plug_in(tmp_path, "vault", code))
    assert Secret.parse("vault:kv/games/kafka#password").resolve() == "kv, games/kafka"


def test_unknown_scheme_is_refused_when_a_pipeline_is_loaded(write: Callable[[str], Path]) -> None:
    with pytest.raises(InvalidPipeline) as raised:
        load_pipeline(write(PIPELINE))
    refused = [each for each in raised.value.findings if each.code == "secret-in-file"]
    assert len(refused) == 2
    for finding in refused:
        assert "kv/games" not in finding.message
        assert finding.hint is not None
        assert "`env:NAME`, `file:/path`, `databricks:scope/key`" in finding.hint


@pytest.mark.usefixtures("vault")
def test_hint_names_the_schemes_of_plug_ins() -> None:
    with pytest.raises(PipelineFileError) as raised:
        Secret.parse(f"vualt:{CANARY}")
    assert raised.value.hint is not None
    assert "`vault:…`" in raised.value.hint
    assert CANARY not in str(raised.value)


@pytest.mark.usefixtures("vault")
@pytest.mark.parametrize(
    ("reference", "problem"),
    [
        (f"vault:kv/{CANARY[:3]}", "`vault` raised KeyError"),
        ("vault:kv#exit", "`vault` raised SystemExit"),
        ("vault:kv#nothing", "`vault` returned no text"),
        ("vault:kv#bytes", "`vault` returned no text"),
    ],
)
def test_error_of_a_plug_in_is_shown_by_its_type_only(reference: str, problem: str) -> None:
    with pytest.raises(PipelineFileError) as raised:
        Secret.parse(reference).resolve()
    assert raised.value.code == "secret-missing"
    assert problem in raised.value.message
    assert CANARY not in "".join(traceback.format_exception(raised.value))
    assert raised.value.__context__ is None


def test_plug_in_that_cannot_be_imported_is_a_missing_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = install_plug_in(tmp_path, "vault", f"raise ValueError('{CANARY}')")
    monkeypatch.syspath_prepend(site)
    with pytest.raises(PipelineFileError, match="raised ValueError") as raised:
        Secret.parse("vault:kv").resolve()
    assert CANARY not in "".join(traceback.format_exception(raised.value))


def test_plug_in_does_not_replace_a_scheme_of_headgate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(install_plug_in(tmp_path, "env", "raise AssertionError"))
    monkeypatch.setenv("PW", "in a variable")
    assert Secret.parse("env:PW").resolve() == "in a variable"


@pytest.mark.usefixtures("vault")
def test_secret_of_a_service_is_kept_for_a_minute_and_then_read_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 1000.0
    monkeypatch.setattr("headgate.config.secret_sources.time.monotonic", lambda: now)
    secret = Secret.parse("vault:kv/games#password")
    for value, seconds, expected in (("one", 0, "one"), ("two", 59, "one"), ("two", 2, "two")):
        now += seconds
        monkeypatch.setenv("VAULT_HAS", value)
        assert secret.resolve() == expected
    assert len(calls()) == 2
    # The service has forgotten it, or is down.
    now += 61
    monkeypatch.setenv("VAULT_HAS", "")
    assert secret.resolve() == "two"


@pytest.mark.usefixtures("vault")
def test_executor_uses_the_secret_of_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    secret = Secret.parse("vault:kv/games#password")
    sent = task_secrets([secret])
    monkeypatch.setattr(secret_sources, "_kept", {})
    secret_sources.sources.cache_clear()
    monkeypatch.setattr(secret_sources, "entry_points", lambda group: [])
    with pytest.raises(PipelineFileError, match="no installed package declares `vault`"):
        secret.resolve()
    for name, value in sent.items():
        monkeypatch.setenv(name, value)
    assert secret.resolve() == CANARY


def test_secret_of_a_databricks_scope_is_read_with_the_sdk(workspace: Workspace) -> None:
    secret = Secret.parse("databricks:games/kafka-password")
    assert secret.resolve() == CANARY
    assert secret.resolve() == CANARY
    assert workspace.requests == ["games/kafka-password"]


@pytest.mark.parametrize("name", ["games/other", "other/kafka-password"])
def test_missing_secret_of_a_databricks_scope(workspace: Workspace, name: str) -> None:
    with pytest.raises(PipelineFileError, match="raised ResourceDoesNotExist") as raised:
        Secret.parse(f"databricks:{name}").resolve()
    assert raised.value.code == "secret-missing"
    assert workspace.requests == [name]


def test_refused_login_to_databricks_does_not_show_the_token(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABRICKS_TOKEN", CANARY)
    with pytest.raises(PipelineFileError, match="raised PermissionDenied") as raised:
        Secret.parse("databricks:games/kafka-password").resolve()
    assert CANARY not in "".join(traceback.format_exception(raised.value))


@pytest.mark.parametrize("name", ["", "games", "games/", "/key", "a/b/c", "a b/c", "games/k#y"])
def test_databricks_reference_has_a_scope_and_a_key(name: str) -> None:
    with pytest.raises(PipelineFileError) as raised:
        Secret.parse(f"databricks:{name}")
    assert raised.value.code == "secret-in-file"


def test_databricks_without_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "databricks.sdk", None)
    with pytest.raises(SetupError) as raised:
        Secret.parse("databricks:games/kafka-password").resolve()
    assert raised.value.code == "extra-missing"
    assert raised.value.hint == 'pip install "headgate[databricks]"'


DBRUNTIME = """\
class UserNamespaceInitializer:
    @classmethod
    def getOrCreate(cls):
        return cls()
    def get_namespace_globals(self):
        return {"dbutils": self}
    @property
    def secrets(self):
        return self
    def get(self, scope, key):
        return f"{scope} and {key} of the cluster"
"""


def test_secret_is_read_with_dbutils_on_a_databricks_cluster(tmp_path: Path) -> None:
    (tmp_path / "dbruntime.py").write_text(DBRUNTIME)
    code = "from headgate import Secret; print(Secret.parse('databricks:games/pw').resolve())"
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": path, "DATABRICKS_RUNTIME_VERSION": "17.3"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "games and pw of the cluster\n", done.stderr


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("env:PW", Secret("env", "PW")),
        ("databricks:games/pw", Secret("databricks", "games/pw")),
        ("file:/a", "file:/a"),
        ("http://host:8081/a", "http://host:8081/a"),
        ("broker:9092", "broker:9092"),
        ("env:prod,team:games", "env:prod,team:games"),
        ("databricks:oops", "databricks:oops"),
        ("local[2]", "local[2]"),
    ],
)
def test_setting_with_any_name_may_be_a_reference(value: str, expected: str | Secret) -> None:
    assert read_setting("spark.acme.thing", value, "/etc") == expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("me", "me"),
        ("DOMAIN\\me", "DOMAIN\\me"),
        ("file:/run/user", Secret("file", "/run/user")),
        ("databricks:games/user", Secret("databricks", "games/user")),
        ("vault:kv/games#user", None),
        ("me:hunter2hunter2", None),
    ],
)
def test_username_is_a_name_or_a_known_reference(given: str, expected: str | Secret | None) -> None:
    def username() -> str | Secret | None:
        password = Secret("env", "PW")
        return Security(
            protocol="SASL_SSL", mechanism="PLAIN", username=given, password=password
        ).username

    if expected is not None:
        assert username() == expected
        return
    with pytest.raises(HeadgateError) as raised:
        username()
    assert raised.value.code == "secret-in-file"
    assert CANARY not in str(raised.value)


@pytest.mark.parametrize("installed", [True, False])
def test_commands_know_the_scheme_of_an_installed_package(tmp_path: Path, installed: bool) -> None:
    site = install_plug_in(tmp_path, "vault", VAULT) if installed else tmp_path
    (tmp_path / "games.yaml").write_text(PIPELINE)
    path = os.pathsep.join([str(site), *filter(None, [os.environ.get("PYTHONPATH")])])

    def headgate(*words: str) -> tuple[int, str]:
        done = subprocess.run(
            [sys.executable, "-m", "headgate", *words],
            env={**os.environ, "PYTHONPATH": path},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert CANARY not in done.stdout + done.stderr
        return done.returncode, done.stdout

    code, printed = headgate("check", "--json")
    assert code == (0 if installed else 1), printed
    if installed:
        _, printed = headgate("doctor", "games.yaml", "--json")
        checks = {each["name"]: each for each in json.loads(printed)["data"]}
        assert checks["secret vault:kv/games#password"]["state"] == "ok"
        assert "`vault` raised KeyError" in str(checks["secret vault:kv/games#user"])
