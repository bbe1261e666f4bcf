from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from headgate.config import Secret, check_pipeline, load_pipeline
from headgate.config.secret_patterns import contains_secret, is_secret_name, redaction

CANARY = "hunter2hunter2"
PIPELINE = """\
name: games
source: {{kafka: {{servers: "localhost:9092", topics: [games]}}}}
registry: ./schemas
envelope: confluent
lake: ./lake
spark:
  spark.sql.shuffle.partitions: 2
  {setting}
"""

SECRETS = [
    "spark.hadoop.fs.azure.account.key.acme.dfs.core.windows.net",
    "spark.hadoop.fs.azure.account.key",
    "spark.hadoop.fs.azure.sas.box.acme.blob.core.windows.net",
    "spark.hadoop.fs.azure.sas.fixed.token",
    "spark.hadoop.fs.azure.account.oauth2.client.secret",
    "spark.hadoop.fs.azure.account.oauth2.client.secret.acme.dfs.core.windows.net",
    "spark.hadoop.fs.azure.account.oauth2.user.password",
    "spark.hadoop.fs.azure.account.oauth2.refresh.token",
    "spark.hadoop.fs.azure.encryption.client-provided-key",
    "spark.hadoop.fs.adl.oauth2.credential",
    "spark.hadoop.fs.s3a.access.key",
    "spark.hadoop.fs.s3a.secret.key",
    "spark.hadoop.fs.s3a.session.token",
    "spark.hadoop.fs.s3a.encryption.key",
    "spark.hadoop.fs.s3a.server-side-encryption.key",
    "spark.hadoop.fs.s3a.bucket.acme.access.key",
    "spark.hadoop.fs.s3a.proxy.password",
    "spark.hadoop.fs.s3n.awsAccessKeyId",
    "spark.hadoop.fs.s3n.awsSecretAccessKey",
    "spark.hadoop.fs.gs.auth.service.account.private.key",
    "spark.hadoop.fs.gs.auth.client.secret",
    "spark.hadoop.fs.gs.auth.refresh.token",
    "spark.hadoop.fs.oss.accessKeySecret",
    "spark.hadoop.fs.swift.service.acme.apikey",
    "spark.hadoop.javax.jdo.option.ConnectionPassword",
    "spark.hadoop.parquet.encryption.key.list",
    "spark.ssl.keyPassword",
    "spark.ssl.rpc.privateKeyPassword",
    "spark.ssl.keyStorePassword",
    "spark.ssl.ui.trustStorePassword",
    "spark.authenticate.secret",
    "spark.kubernetes.authenticate.oauthToken",
    "spark.sql.catalog.acme.s3.secret-access-key",
    "spark.sql.catalog.acme.credential",
    "spark.sql.catalog.acme.header.Authorization",
    "spark.executorEnv.AWS_SECRET_ACCESS_KEY",
    "spark.acme.connectionString",
    "spark.acme.sasl.jaas.config",
]

HARMLESS = {
    "spark.authenticate": "true",
    "spark.authenticate.secret.file": "/run/secret",
    "spark.authenticate.secretBitLength": "256",
    "spark.io.encryption.enabled": "true",
    "spark.io.encryption.keySizeBits": "256",
    "spark.io.encryption.keygen.algorithm": "HmacSHA1",
    "spark.ssl.keyStore": "/etc/keys.jks",
    "spark.ssl.keyStoreType": "JKS",
    "spark.ssl.rpc.privateKey": "/etc/key.pem",
    "spark.kerberos.renewal.credentials": "ccache",
    "spark.security.credentials.renewalRatio": "0.75",
    "spark.security.credentials.hive.enabled": "false",
    "spark.kubernetes.driver.secrets.acme": "/etc/secrets",
    "spark.kubernetes.authenticate.driver.oauthTokenFile": "/run/token",
    "spark.hadoop.fs.azure.account.keyprovider.acme.dfs.core.windows.net": "org.acme.Keys",
    "spark.hadoop.fs.azure.sas.token.provider.type.acme.dfs.core.windows.net": "org.acme.Sas",
    "spark.hadoop.fs.azure.account.oauth2.client.id": "5c3b",
    "spark.hadoop.fs.azure.account.oauth2.client.endpoint": "https://login.example.org/t",
    "spark.hadoop.fs.azure.oauth.token.fetch.retry.max.retries": "5",
    "spark.hadoop.fs.s3a.aws.credentials.provider": "org.acme.Provider",
    "spark.hadoop.fs.s3a.path.style.access": "true",
    "spark.hadoop.fs.s3a.delegation.token.binding": "org.acme.Binding",
    "spark.hadoop.fs.gs.auth.service.account.json.keyfile": "/run/key.json",
    "spark.hadoop.hadoop.security.credential.provider.path": "jceks://file/run/keys.jceks",
    "spark.sql.warehouse.dir": "abfss://box@acme.dfs.core.windows.net/warehouse",
    "spark.driver.extraJavaOptions": "-XX:+UseG1GC -Duser.timezone=UTC",
}

TEXTS = [
    "jdbc:mysql://db/shop?user=me&password=hunter2hunter2",
    "jdbc:sqlserver://db;user=me;pwd=hunter2hunter2",
    "jdbc:postgresql://me:hunter2hunter2@db/shop",
    "http://me:hunter2hunter2@proxy:3128",
    "AccountName=acme;AccountKey=hunter2hunter2",
    "Endpoint=sb://acme/;SharedAccessKey=hunter2hunter2",
    "https://acme.blob.core.windows.net/box?sv=2024&sig=hunter2hunter2",
    'org.acme.Login required username="me" password="hunter2hunter2";',
    "-Djavax.net.ssl.trustStorePassword=hunter2hunter2",
    "-----BEGIN RSA PRIVATE KEY----- hunter2hunter2",
    "AKIAHUNTER2HUNTER2AB",
    "Bearer hunter2hunter2hunter2",
    f"{'hunter2/' * 10}hunter==",
]


@pytest.mark.parametrize("name", SECRETS)
def test_literal_secret_of_spark_is_refused_where_it_stands(
    name: str, write: Callable[[str], Path]
) -> None:
    path = write(PIPELINE.format(setting=f"{name}: {CANARY}"))
    (finding,) = check_pipeline(path)
    assert (finding.code, finding.line) == ("secret-in-file", 8)
    assert finding.hint is not None
    assert "env:NAME" in finding.hint
    assert CANARY not in repr(finding)


@pytest.mark.parametrize("name", SECRETS)
def test_secret_of_spark_is_a_reference(name: str, write: Callable[[str], Path]) -> None:
    pipeline = load_pipeline(write(PIPELINE.format(setting=f'{name}: "file:/run/key"')))
    assert pipeline.spark[name] == Secret("file", "/run/key")


@pytest.mark.parametrize(("name", "value"), HARMLESS.items())
def test_setting_about_a_secret_is_not_one(
    name: str, value: str, write: Callable[[str], Path]
) -> None:
    pipeline = load_pipeline(write(PIPELINE.format(setting=f'{name}: "{value}"')))
    assert pipeline.spark[name] == value


@pytest.mark.parametrize("text", TEXTS, ids=lambda text: text[:30])
def test_text_with_a_secret_is_refused_in_any_setting(
    text: str, write: Callable[[str], Path]
) -> None:
    setting = f"spark.acme.url: '{text}'"
    (finding,) = check_pipeline(write(PIPELINE.format(setting=setting)))
    assert (finding.code, finding.line) == ("secret-in-file", 8)
    assert "hunter2" not in repr(finding).lower()


def test_secret_in_the_query_of_a_url_is_refused(write: Callable[[str], Path]) -> None:
    url = "abfss://box@acme.dfs.core.windows.net/a?sv=1&sig=hunter2hunter2"
    text = PIPELINE.format(setting="spark.a: b").replace("lake:", f"checkpoint: {url}\nlake:")
    (finding,) = check_pipeline(write(text))
    assert (finding.code, finding.line) == ("secret-in-file", 5)
    assert "hunter2" not in repr(finding)


@pytest.mark.parametrize(
    "name",
    [
        "spark.driver.extraJavaOptions",
        "spark.executor.extraJavaOptions",
        "spark.driver.memory",
        "spark.master",
        "spark.jars.packages",
    ],
)
def test_setting_of_a_command_line_cannot_be_a_reference(
    name: str, write: Callable[[str], Path]
) -> None:
    (finding,) = check_pipeline(write(PIPELINE.format(setting=f'{name}: "env:OPTIONS"')))
    assert (finding.code, finding.line) == ("bad-value", 8)
    assert "command line" in finding.message


def test_redaction_covers_secrets_whatever_their_names() -> None:
    pattern = re.compile(redaction(["spark.hadoop.fs.acme.thing", "spark.own"], "acme[0-9]"))
    shown = ["spark.hadoop.fs.acme.thing", "fs.acme.thing", "spark.own", "acme1", *SECRETS]
    assert all(pattern.search(name) for name in shown)
    assert not any(map(pattern.search, ("spark.app.name", "spark.sql.shuffle.partitions")))


def test_names_are_those_of_secrets_in_any_case() -> None:
    assert all(is_secret_name(name.upper()) for name in SECRETS)
    assert not contains_secret("spark://host:7077, /a/b?c=d")
