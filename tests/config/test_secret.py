from __future__ import annotations

import os
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headgate.config import (
    InvalidPipeline,
    Kafka,
    Registry,
    Secret,
    Security,
    check_pipeline,
    load_pipeline,
)
from headgate.config.secrets import masked, task_secrets
from headgate.errors import PipelineFileError

CANARY = "hunter2"
GOOD = """\
name: games
source:
  kafka:
    servers: "localhost:9092"
    topics: [games]
    security: {protocol: SASL_SSL, mechanism: PLAIN, username: "env:USER_", password: "env:PW"}
    options: {kafka.ssl.truststore.password: "env:TRUST", kafka.ssl.truststore.location: /a}
registry: {url: "http://host", token: "file:token"}
envelope: confluent
lake: ./lake
spark: {spark.hadoop.fs.s3a.secret.key: "file:/run/key"}
"""


@pytest.mark.parametrize(
    ("reference", "secret"),
    [
        ("env:PW", Secret("env", "PW")),
        ("file:/run/pw", Secret("file", "/run/pw")),
        ("file:///run/pw", Secret("file", "/run/pw")),
        ("file:pw", Secret("file", "/etc/pw")),
        ("file:../pw", Secret("file", "/pw")),
    ],
)
def test_secret_parses_references(reference: str, secret: Secret) -> None:
    assert Secret.parse(reference, folder="/etc") == secret


@pytest.mark.parametrize(
    "text", [CANARY, "", "env:", f"env:{CANARY} !", "file:", "file:/", f"vault:{CANARY}", "ENV:PW"]
)
def test_invalid_reference_is_rejected_and_not_repeated(text: str) -> None:
    with pytest.raises(PipelineFileError) as raised:
        Secret.parse(text)
    assert raised.value.code == "secret-in-file"
    assert CANARY not in repr(raised.value) + str(raised.value)


def test_secret_is_read_at_each_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    in_file, in_variable = Secret("file", str(tmp_path / "pw")), Secret.parse("env:PW")
    for value in ("one", "two"):
        monkeypatch.setenv("PW", value)
        (tmp_path / "pw").write_text(f"{value}\n")
        assert (in_file.resolve(), in_variable.resolve()) == (value, value)


def test_task_on_another_machine_gets_secrets_of_the_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pw").write_text("in a file")
    monkeypatch.setenv("PW", "in a variable")
    secrets = [Secret("file", str(tmp_path / "pw")), Secret("env", "PW")]
    sent = task_secrets(secrets)
    monkeypatch.delenv("PW")
    (tmp_path / "pw").unlink()
    for name, value in sent.items():
        monkeypatch.setenv(name, value)
    assert [one.resolve() for one in secrets] == ["in a file", "in a variable"]
    monkeypatch.setenv("PW", "of that machine")
    assert secrets[1].resolve() == "of that machine"


def test_resolved_secrets_are_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PW", "two lines:\nhunter2")
    monkeypatch.setenv("ME", "games")
    for name in ("PW", "ME"):
        Secret("env", name).resolve()
    raised = f"<Key>two lines:\nhunter2</Key> {os.environ['PW']!r} ?key=two%20lines%3A%0Ahunter2"
    assert masked(f"games: {raised}") == "games: <Key>***</Key> '***' ?key=***"


def test_missing_secret_names_where_it_looked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EMPTY", "")
    (tmp_path / "binary").write_bytes(b"\xff" + CANARY.encode())
    missing = {
        "PW_NOT_SET": Secret("env", "PW_NOT_SET"),
        "EMPTY": Secret("env", "EMPTY"),
        "nowhere": Secret("file", str(tmp_path / "nowhere")),
        "binary": Secret("file", str(tmp_path / "binary")),
    }
    for word, secret in missing.items():
        with pytest.raises(PipelineFileError, match=word) as raised:
            secret.resolve()
        assert raised.value.code == "secret-missing"
        assert CANARY not in "".join(traceback.format_exception(raised.value))


def test_secret_shows_only_its_reference(
    write: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PW", CANARY)
    pipeline = load_pipeline(write(GOOD))
    assert isinstance(pipeline.source, Kafka)
    assert pipeline.source.security is not None
    assert pipeline.source.security.password is not None
    assert pipeline.source.security.password.resolve() == CANARY
    assert str(pipeline.source.security.password) == "env:PW"
    for shown in (repr(pipeline), str(pipeline), pipeline.model_dump_json()):
        assert "env:PW" in shown
        assert CANARY not in shown


def test_secret_in_a_file_is_relative_to_the_pipeline_file(write: Callable[[str], Path]) -> None:
    path = write(GOOD)
    pipeline = load_pipeline(path)
    assert pipeline.schema_registry.token == Secret("file", str(path.parent / "token"))
    assert pipeline.spark == {"spark.hadoop.fs.s3a.secret.key": Secret("file", "/run/key")}
    assert isinstance(pipeline.source, Kafka)
    assert pipeline.source.options == {
        "kafka.ssl.truststore.password": Secret("env", "TRUST"),
        "kafka.ssl.truststore.location": "/a",
    }


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"env:PW"', CANARY),
        ('"env:PW"', f"[{CANARY}]"),
        ('"env:PW"', f"{{{CANARY}: {CANARY}}}"),
        ('"env:PW"', f"!{CANARY} x"),
        ('"env:PW"', f"*{CANARY}"),
        ('"env:PW"', f'"{CANARY}'),
        ('"env:TRUST"', CANARY),
        ('"file:token"', CANARY),
        ('"file:/run/key"', CANARY),
        ("http://host", f"http://me:{CANARY}@host"),
        ("http://host", f"http://me:pa/ss@{CANARY}@host"),
        ("http://host", f"http://{CANARY}@host"),
        ("localhost:9092", f"me:{CANARY}@localhost:9092"),
        ("localhost:9092", f"a:1,me:{CANARY}@b c:1"),
        ("./lake", f"s3://me:{CANARY}@bucket"),
        ("spark.hadoop.fs.s3a.secret.key", f"spark.a: '-Dpassword={CANARY}', spark.b"),
        ("kafka.ssl.truststore.location: /a", f"kafka.sasl.jaas.config: {CANARY}"),
        ("kafka.ssl.truststore.location: /a", f"kafka.proxy: http://me:{CANARY}@host"),
    ],
)
def test_secret_in_the_file_is_found_and_not_repeated(
    old: str, new: str, write: Callable[[str], Path]
) -> None:
    assert old in GOOD
    path = write(GOOD.replace(old, new))
    assert check_pipeline(path)
    with pytest.raises(InvalidPipeline) as raised:
        load_pipeline(path)
    assert CANARY not in "".join(traceback.format_exception(raised.value))
    assert CANARY not in repr(raised.value.findings)
    assert raised.value.__context__ is None


def test_secret_given_in_python_is_rejected_and_not_repeated() -> None:
    literal: Any = CANARY
    with pytest.raises(InvalidPipeline) as raised:
        Registry(url="http://host", token=literal)
    assert raised.value.code == "secret-in-file"
    assert CANARY not in f"{raised.value!r} {raised.value} {raised.value.findings}"
    assert raised.value.__context__ is None


def test_username_may_be_given_in_the_file() -> None:
    def username(given: str) -> str | Secret | None:
        password = Secret("env", "PW")
        return Security(
            protocol="SASL_SSL", mechanism="PLAIN", username=given, password=password
        ).username

    assert username("me") == "me"
    assert username("env:ME") == Secret("env", "ME")
