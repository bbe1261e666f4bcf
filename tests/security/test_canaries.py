"""No secret of a pipeline is in anything that a run prints, writes, shows or starts.

Each place for a secret has a random value of its own, and all of them are searched for. A control
value, which is not a secret, must be found in every kind of place: else the search would be blind.
The environment of the run's own processes is the only place where secrets may be.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import signal
import subprocess
import sys
import time
from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
)
from cryptography.x509.oid import NameOID
from pydantic import BaseModel

from headgate.config import PipelineConfig, Secret, Storage
from headgate.config.model import _models_of, fields_by_key
from headgate.config.storage import declare_storage
from headgate.errors import SetupError
from headgate.lab.broker import broker_answers, start_broker
from headgate.lab.destination import KafkaDestination
from headgate.lab.games import GamesPlan, simulate_games
from headgate.lab.object_store import BUCKET, StoreFolder
from headgate.lab.process import HOST, choose_port, wait_until_ready
from headgate.lab.services import down, up_storage
from headgate.lake.storage import find_files, read_file
from headgate.registry.folder import FolderRegistry
from headgate.workflow.journal import Journal
from tests.config.secret_services import Workspace, databricks_workspace, install_plug_in
from tests.registry.fake_registry import fake_registry, folder_responses
from tests.security.canaries import Canary, Evidence, add_spark_ui, command_lines_into
from tests.storage.simulated import simulated_store

ROOT = Path(__file__).parents[2]

PLACES = (
    ("source.kafka.security", "username", "env"),
    ("source.kafka.security", "password", "file"),
    ("source.kafka.options", "kafka.ssl.truststore.password", "env"),
    ("source.kafka.options", "kafka.ssl.keystore.password", "databricks"),
    ("source.kafka.options", "kafka.ssl.key.password", "vault"),
    ("source.kafka.options", "kafka.ssl.keystore.key", "env"),
    ("registry", "username", "databricks"),
    ("registry", "password", "vault"),
    ("registry", "token", "env"),
    ("registry", "key_password", "file"),
    ("storage", "access_key", "file"),
    ("storage", "secret_key", "vault"),
    ("storage", "session_token", "env"),
    ("storage", "account_key", "env"),
    ("storage", "sas_token", "databricks"),
    ("storage", "service_account", "file"),
    ("storage.options", "aws_metadata_endpoint", "vault"),
    ("spark", "spark.hadoop.fs.azure.account.key.acme.dfs.core.windows.net", "env"),
    ("spark", "spark.hadoop.fs.acme.plain.name", "env"),
    ("spark", "spark.ssl.keyPassword", "file"),
    ("spark", "spark.acme.thing", "databricks"),
    ("spark", "spark.acme.password", "vault"),
    ("workflow.notify", "failure", "env"),
    ("workflow.email", "username", "env"),
    ("workflow.email", "password", "vault"),
    ("workflow.airflow", "username", "databricks"),
    ("workflow.airflow", "password", "file"),
)
"""Every place of a pipeline file for a secret: its parent, its key, and the scheme to use there."""

LEFT_OUT = {"source.kafka.security.key_password": "needs TLS, and becomes kafka.ssl.key.password"}

UNUSABLE = ("storage.session_token",)
"""Places that no run can use: the object store of the lab refuses temporary keys."""

WITHOUT_ESCAPES = {"username", "access_key", "secret_key", "session_token", "token", "failure"}
"""Keys whose values have no characters that some formats must escape."""

LOGIN = "login of Databricks"

NOWHERE = f"{HOST}:9"
"""An address at which nothing answers."""

COMMANDS = (
    "check",
    "check --json",
    "check --online",
    "doctor games.yaml",
    "doctor games.yaml --json",
    "plan",
    "plan --json",
    "graph",
    "graph --json",
    "status",
    "status --json",
    "tables --json",
    "quarantine list --json",
    "maintain --dry-run",
    "submit --print --master yarn --deploy-mode cluster --pack none",
    "spark --print",
    "workflow render games.yaml --target airflow",
    "workflow render ../broken/databricks.yaml --target databricks",
    "workflow render games.yaml --target systemd",
    "workflow render games.yaml --target cron",
    "workflow install games.yaml --target airflow",
    "workflow status games.yaml --target airflow --debug",
    "workflow run games.yaml --debug",
    "workflow repair games.yaml --json",
    "workflow status games.yaml --json",
    "check ../broken/unknown.yaml --debug",
    "plan ../broken/missing.yaml --debug",
    "doctor ../broken/missing.yaml",
    "doctor ../broken/lines.yaml --debug",
    "plan ../broken/lines.yaml --debug",
    "status ../broken/lines.yaml --debug",
    "check ../broken/refused.yaml --online --debug",
    "status ../broken/refused.yaml --debug",
)

LOGGING = """\
status = error
appender.file.type = File
appender.file.name = file
appender.file.fileName = {folder}/logs/spark.log
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %p %c %m%n%throwable
rootLogger.level = info
rootLogger.appenderRef.file.ref = file
"""

VAULT = """\
import json, os
def read(reference):
    secrets = json.load(open(os.environ["ACME_VAULT"]))
    if reference not in secrets:
        raise LookupError(f"not among {secrets}")
    return secrets[reference]
"""


@dataclass(frozen=True)
class Lab:
    """The servers of a run, which have their secrets, and the folder that it works in."""

    folder: Path
    canaries: Mapping[str, Canary]
    control: Canary
    workspace: Workspace
    plain_kafka: str
    login_kafka: str
    storage: Storage
    schemas: FolderRegistry

    @property
    def topic(self) -> str:
        return f"control-{self.control.value}"

    @property
    def lake(self) -> str:
        return f"s3://{BUCKET}/{self.control.value}"

    @property
    def environment(self) -> dict[str, str]:
        found = os.pathsep.join([str(self.folder.parent / "site"), str(ROOT)])
        options = f"-XX:TieredStopAtLevel=1 -Dlog4j2.configurationFile={self.folder}/log4j2"
        return {
            **os.environ,
            **self.workspace.login,
            **{
                _variable(f"{parent}.{key}"): self.canaries[f"{parent}.{key}"].value
                for parent, key, scheme in PLACES
                if scheme == "env"
            },
            "ACME_VAULT": str(self.folder.parent / "vault.json"),
            "PYTHONPATH": found,
            "SPARK_SUBMIT_OPTS": f"{options}.properties",
            "TMPDIR": str(self.folder / "tmp"),
        }

    def send(self, seed: int) -> None:
        """Send records, some of which go to the quarantine."""
        plan = GamesPlan(tables=2, versions=2, records=400, bad_share=0.05, seed=seed)
        list(simulate_games(plan, self.schemas, KafkaDestination(self.plain_kafka, self.topic, 1)))

    def write_pipeline(self, registry: str, ui_port: int, *without: str) -> None:
        declared: dict[str, Any] = {
            "name": f"games-{self.control.value}",
            "source": {
                "kafka": {
                    "servers": self.login_kafka,
                    "topics": [self.topic],
                    "security": {"protocol": "SASL_PLAINTEXT", "mechanism": "PLAIN"},
                }
            },
            "registry": {
                "url": registry,
                "timeout": "1s",
                "certificate": "../client.pem",
                "key": "../client.key",
            },
            "envelope": {
                "wrapper": {
                    "message": "wrapper",
                    "route": "game_name",
                    "schema_id": "schema_id",
                    "payload": "payload",
                }
            },
            "lake": self.lake,
            "storage": {"endpoint": self.storage.endpoint, "region": self.storage.region},
            "bronze": "bronze",
            "gold": {"gold_{route}": "SELECT user_name, count(*) AS n FROM silver GROUP BY 1"},
            "trigger": "200ms",
            "workflow": {
                "schedule": "daily",
                "retries": 1,
                "retry_wait": "10ms",
                "notify": {"retry": "team@example.com"},
                "email": {"smtp": NOWHERE, "sender": "headgate@example.com"},
                "airflow": {"url": f"http://{NOWHERE}", "dags": "dags"},
                "databricks": {
                    "secret_scope": "acme",
                    "clusters": {"small": {"node_type": "i3.xlarge"}},
                },
                "tasks": {"fails": {"command": f"ls {self.control.value}"}},
            },
            "spark": {
                "spark.acme.control": self.control.value,
                "spark.logConf": True,
                "spark.ui.enabled": True,
                "spark.ui.port": ui_port,
                "spark.eventLog.enabled": True,
                "spark.eventLog.compress": False,
                "spark.eventLog.dir": f"file:{self.folder}/events",
                "spark.local.dir": str(self.folder / "local"),
                "spark.driver.memory": "600m",
            },
        }
        for parent, key, scheme in PLACES:
            place = f"{parent}.{key}"
            if place not in without:
                _at(declared, parent)[key] = self.reference(place, scheme)
        (self.folder / "games.yaml").write_text(yaml.safe_dump(declared))

    def reference(self, place: str, scheme: str) -> str:
        match scheme:
            case "env":
                return f"env:{_variable(place)}"
            case "file":
                return f"file:../secrets/{place}"
            case _:
                return f"{scheme}:acme/{place}"

    def start(self, output: str, *words: str) -> subprocess.Popen[bytes]:
        """Start a module of Python whose output goes to a file among the logs."""
        with (self.folder / "logs" / output).open("wb") as out:
            return subprocess.Popen(
                [sys.executable, "-m", *words],
                cwd=self.folder,
                env=self.environment,
                stdout=out,
                stderr=subprocess.STDOUT,
            )


def _at(declared: dict[str, Any], path: str) -> dict[str, Any]:
    for key in path.split("."):
        declared = declared.setdefault(key, {})
    return declared


def _variable(place: str) -> str:
    return "ACME_" + "".join(letter if letter.isalnum() else "_" for letter in place)


@contextmanager
def _lab(folder: Path) -> Iterator[Lab]:
    canaries = {
        f"{parent}.{key}": Canary(
            rest="" if key in WITHOUT_ESCAPES else " +/&%\"é'\nx",
            before=f"http://{NOWHERE}/" if key == "failure" else "",
        )
        for parent, key, _ in PLACES
    }
    values = {place: canary.value for place, canary in canaries.items()}
    for name in ("run/logs", "run/tmp", "run/local", "run/events", "run/dags", "secrets"):
        (folder / name).mkdir(parents=True)
    (folder / "run/log4j2.properties").write_text(LOGGING.format(folder=folder / "run"))
    for place, value in values.items():
        (folder / "secrets" / place).write_text(value)
    _write_certificate(folder, values["registry.key_password"])
    install_plug_in(folder, "vault", VAULT)
    of_services = {f"acme/{place}": value for place, value in values.items()}
    (folder / "vault.json").write_text(json.dumps(of_services))
    login = Canary()
    with ExitStack() as stack:
        workspace = stack.enter_context(databricks_workspace(of_services))
        workspace.token = login.value
        endpoint = stack.enter_context(_object_store(folder / "store", values))
        plain, with_login = stack.enter_context(_broker(folder / "broker", values))
        secret = folder / "secrets"
        yield Lab(
            folder / "run",
            {**canaries, LOGIN: login},
            Canary(),
            workspace,
            plain,
            with_login,
            Storage(
                endpoint=endpoint,
                region="us-east-1",
                access_key=Secret("file", str(secret / "storage.access_key")),
                secret_key=Secret("file", str(secret / "storage.secret_key")),
            ),
            FolderRegistry(str(folder / "schemas")),
        )


def _write_certificate(folder: Path, password: str) -> None:
    """Write a client certificate whose key is encrypted."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "games")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    (folder / "client.pem").write_bytes(certificate.public_bytes(Encoding.PEM))
    encryption = BestAvailableEncryption(password.encode())
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)
    (folder / "client.key").write_bytes(pem)


@contextmanager
def _object_store(folder: Path, values: Mapping[str, str]) -> Iterator[str]:
    keys = StoreFolder.of(folder)
    keys.path.mkdir(parents=True)
    keys.access_key.write_text(values["storage.access_key"])
    keys.secret_key.write_text(values["storage.secret_key"])
    try:
        store = up_storage(folder)
    except SetupError as error:
        if error.code != "object-store-missing":
            raise
        with simulated_store(folder) as simulated:
            yield f"http://{simulated.address}"
        return
    yield f"http://{store.address}"
    down(folder)


@contextmanager
def _broker(folder: Path, values: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Start a broker with two listeners; the second one needs a login."""
    plain = choose_port("broker", requested=None)
    controller = choose_port("broker", requested=None, taken=(plain,))
    login = choose_port("broker", requested=None, taken=(plain, controller))
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    user, password = (values[f"source.kafka.security.{key}"] for key in ("username", "password"))
    quoted = password.replace('"', '\\"').replace("\n", "\\n")
    listeners = f"BROKER://{HOST}:{plain},LOGIN://{HOST}:{login}"
    process = start_broker(
        folder,
        plain,
        controller,
        further={
            "listeners": f"{listeners},CONTROLLER://{HOST}:{controller}",
            "advertised.listeners": listeners,
            "listener.security.protocol.map": "BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT,"
            "LOGIN:SASL_PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.login.plain.sasl.jaas.config": (
                f'{module} required user_{user}="{quoted}";'
            ),
        },
    )
    try:
        wait_until_ready(process, lambda: broker_answers(plain))
        yield f"{HOST}:{plain}", f"{HOST}:{login}"
    finally:
        process.stop()


def _wait_for_batch(run: subprocess.Popen[bytes], output: Path) -> None:
    ends = time.monotonic() + 120
    while b'"gold_derived"' not in output.read_bytes():
        assert run.poll() is None, output.read_text()[-3000:]
        assert time.monotonic() < ends, output.read_text()[-3000:]
        time.sleep(0.1)


def _add_lake(evidence: Evidence, lake: str) -> None:
    for file in find_files(lake):
        name = file.path.removeprefix(f"{lake}/")
        match name.split("/")[0]:
            case _ if "_delta_log" in name:
                kind = "transaction logs"
            case "_checkpoints":
                kind = "checkpoints"
            case "ledger" | "quarantine" as table:
                kind = table
            case _:
                kind = "other tables"
        if file.size:  # Spark marks folders with empty objects.
            evidence.add(kind, name, read_file(f"{lake}/{name}"))


@pytest.fixture(autouse=True)
def _only_on_linux() -> None:
    if not Path("/proc/self/cmdline").exists():
        pytest.skip("command lines are read from /proc")


def _allows_secret(annotation: object) -> bool:
    if get_origin(annotation) in (Annotated, UnionType, Union):
        return any(map(_allows_secret, get_args(annotation)))
    return annotation is Secret


def _keys_with_secrets(model: type[BaseModel], path: str = "") -> Iterator[str]:
    for key, field in fields_by_key(model).items():
        if _allows_secret(field.annotation):
            yield f"{path}{key}"
        for inner in _models_of(field):
            yield from _keys_with_secrets(inner, f"{path}{key}.")


def test_table_of_places_has_every_key_for_a_secret() -> None:
    declared = {f"{parent}.{key}" for parent, key, _ in PLACES}
    keys = set(_keys_with_secrets(PipelineConfig))
    assert {"source.kafka.security.username", "registry.token"} <= keys
    assert keys - LEFT_OUT.keys() <= declared
    free_form = {"source.kafka.options", "storage.options", "spark"}
    assert free_form <= {parent for parent, _, _ in PLACES}
    assert len(PLACES) >= 20


@pytest.mark.parametrize("how", ["text", "gzip", "parquet", "base64", "URL", "JSON", "cut off"])
def test_search_finds_a_planted_canary(tmp_path: Path, how: str) -> None:
    canary, file = Canary(rest=" +é"), tmp_path / "planted"
    content = {
        "text": canary.value.encode(),
        "gzip": gzip.compress(canary.value.encode()),
        "base64": b64encode(f"user:{canary.value}".encode()),
        "URL": quote(canary.value).encode(),
        "JSON": json.dumps(canary.value).encode(),
        "cut off": canary.value[:12].encode(),
    }
    if how == "parquet":
        table = pa.table({"column": [{"nested": [canary.value]}]})
        pq.write_table(table, file, compression="gzip", write_statistics=False)
        assert canary.value.encode() not in file.read_bytes()
    else:
        file.write_bytes(b"before" + content[how] if how != "gzip" else content[how])
    evidence = Evidence()
    evidence.add_folder("planted", tmp_path)
    assert evidence.hits({"here": canary, "nowhere": Canary()}) == ["here in planted: planted"]


def test_search_finds_a_canary_in_the_arguments_of_a_process() -> None:
    canary, evidence = Canary(), Evidence()
    with command_lines_into(evidence):
        subprocess.run([sys.executable, "-c", "pass", canary.value], check=True)
    assert evidence.hits({"here": canary})


def test_secrets_are_found_nowhere(tmp_path: Path) -> None:
    evidence = Evidence()
    with _lab(tmp_path) as lab:
        lab.send(seed=1)
        port = choose_port("Spark UI", requested=None)
        logs = lab.folder / "logs"
        declare_storage(lab.storage, lab.lake)
        with command_lines_into(evidence):
            with fake_registry(folder_responses(lab.schemas)) as registry:
                lab.write_pipeline(registry.url, port, "registry.token", *UNUSABLE)
                works = lab.start("works", "headgate", "run", "games.yaml", "--json", "--debug")
                _wait_for_batch(works, logs / "works")
                add_spark_ui(evidence, f"http://{HOST}:{port}")
                evidence.add_folder("temporary files", lab.folder / "local")
                evidence.add_folder("temporary files", lab.folder / "tmp")
                works.send_signal(signal.SIGINT)
                assert works.wait(60) == 0
                _write_broken_pipelines(lab)
                words = json.dumps([line.split() for line in COMMANDS])
                reports = lab.start("commands", "tests.security.report", "games.yaml", words)
                assert reports.wait(120) == 0
                _add_workflow(evidence, lab)
            lab.send(seed=2)
            without = ("registry.username", "registry.password", *UNUSABLE)
            lab.write_pipeline(registry.url, port, *without)
            fails = lab.start("registry is down", "headgate", "run", "--once", "--debug")
            assert fails.wait(120) == 1
        assert "registry-unavailable" in (logs / "registry is down").read_text()
        user, password = (lab.canaries[f"registry.{key}"].value for key in ("username", "password"))
        login = b64encode(f"{user}:{password}".encode()).decode()
        assert registry.authorizations == {f"Basic {login}"}
        _add_lake(evidence, lab.lake)
    evidence.add_folder("event log", lab.folder / "events")
    evidence.add_folder("output and logs", logs)
    assert evidence.hits(lab.canaries) == []
    found = {kind for kind, _ in evidence.places_of(lab.control)}
    assert found == evidence.found.keys() - {"temporary files"}


def _add_workflow(evidence: Evidence, lab: Lab) -> None:
    """Add the DAG that was installed, and the journal of runs, which is then deleted."""
    evidence.add_folder("DAGs", lab.folder / "dags")
    printed = (lab.folder / "logs" / "commands").read_text()
    log = re.search(r'"log": "(.*)/[^/]+/fails\.\d+\.log"', printed)
    assert log is not None, printed
    journal = Journal(Path(log[1]))
    evidence.add_folder("journal of workflows", journal.folder)
    journal.remove()
    assert "warning: no e-mail sent" in printed
    assert "warning: webhook env:" in printed
    assert "python_wheel_task" in printed


def _write_broken_pipelines(lab: Lab) -> None:
    """Write files with a literal secret, a plug-in that fails, wrong keys, and line breaks.

    And one for Databricks, which has neither plug-ins nor files of this machine.
    """
    text = (lab.folder / "games.yaml").read_text()
    folder = lab.folder.parent / "broken"
    folder.mkdir()
    reference = lab.reference("registry.password", "vault")
    literal = f"unknown:{lab.canaries['registry.password'].word}"
    (folder / "unknown.yaml").write_text(text.replace(reference, literal))
    (folder / "missing.yaml").write_text(text.replace(reference, f"{reference}-missing"))
    secret_key = lab.reference("storage.secret_key", "vault")
    declared = yaml.safe_load(text.replace(secret_key, reference))
    declared["storage"]["session_token"] = lab.reference("storage.session_token", "env")
    (folder / "refused.yaml").write_text(yaml.safe_dump(declared))
    for parent, key, _ in PLACES:
        place = f"{parent}.{key}"
        (folder / place).write_text(f"before\n{lab.canaries[place].value}\nafter")
        if place != "registry.token":
            _at(declared, parent)[key] = f"file:{place}"
    (folder / "lines.yaml").write_text(yaml.safe_dump(declared))
    declared = yaml.safe_load(text) | {"commit": "spark"}
    declared["source"]["kafka"]["servers"] = "kafka.example.com:9092"
    declared["registry"]["url"] = "https://registry.example.com"
    declared["storage"]["endpoint"] = "https://storage.example.com"
    for file in ("certificate", "key"):
        del declared["registry"][file]
    for parent, key, _ in PLACES:
        if f"{parent}.{key}" != "registry.key_password":
            _at(declared, parent)[key] = f"env:{_variable(f'{parent}.{key}')}"
    del declared["registry"]["token"], declared["registry"]["key_password"]
    (folder / "databricks.yaml").write_text(yaml.safe_dump(declared))
