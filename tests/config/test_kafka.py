from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import pytest

from headgate.config import InvalidPipeline, Kafka, Secret


def kafka(**fields: Any) -> Kafka:
    return Kafka(**{"servers": "localhost:9092", "topics": ["games"], **fields})


@pytest.mark.parametrize(
    ("written", "start"),
    [
        ("earliest", "earliest"),
        ("latest", "latest"),
        ("2026-11-01 12:00:00", datetime(2026, 11, 1, 12, tzinfo=UTC)),
        ("2026-11-01T12:00:00+02:00", datetime(2026, 11, 1, 10, tzinfo=UTC)),
        (datetime(2026, 11, 1, 12), datetime(2026, 11, 1, 12, tzinfo=UTC)),
        (
            datetime(2026, 11, 1, 12, tzinfo=timezone(timedelta(hours=1))),
            datetime(2026, 11, 1, 11, tzinfo=UTC),
        ),
        (date(2026, 11, 1), datetime(2026, 11, 1, tzinfo=UTC)),
        ({"games": {0: 12, 1: -2}}, {"games": {0: 12, 1: -2}}),
    ],
)
def test_kafka_start_takes_words_times_and_offsets(written: object, start: object) -> None:
    assert kafka(start=written).start == start
    assert kafka(start=written).model_dump_json()


@pytest.mark.parametrize(
    "servers", ["localhost:9092", "a.b-c:1, d:2", "[::1]:9092", "SASL_SSL://broker:9093"]
)
def test_kafka_servers_are_hosts_and_ports(servers: str) -> None:
    assert kafka(servers=servers).servers == servers


def test_kafka_topics_are_immutable() -> None:
    assert kafka(topics=["a", "b"]).topics == ("a", "b")


def test_kafka_options_become_text() -> None:
    options = {
        "kafka.session.timeout.ms": 30000,
        "kafka.check.crcs": False,
        "kafka.group.id": "readers",
        "kafka.client.id": "env:CLIENT",
        "minPartitions": 4,
    }
    assert kafka(options=options).options == {
        "kafka.session.timeout.ms": "30000",
        "kafka.check.crcs": "false",
        "kafka.group.id": "readers",
        "kafka.client.id": Secret("env", "CLIENT"),
        "minPartitions": "4",
    }


def refusals(options: Mapping[str, object]) -> dict[str, str]:
    with pytest.raises(InvalidPipeline) as raised:
        kafka(options=options)
    return {each.message.split("`")[1]: each.code for each in raised.value.findings}


@pytest.mark.parametrize(
    "option",
    [
        "kafka.sasl.jaas.config",
        "KAFKA.SASL.JAAS.CONFIG",
        "kafka.sasl.client.callback.handler.class",
        "kafka.sasl.login.callback.handler.class",
        "kafka.sasl.login.class",
        "kafka.sasl.oauthbearer.token.endpoint.url",
        "kafka.sasl.oauthbearer.jwks.endpoint.url",
        "kafka.sasl.kerberos.kinit.cmd",
        "kafka.ssl.engine.factory.class",
        "kafka.security.providers",
        "kafka.config.providers",
        "kafka.interceptor.classes",
        "kafka.metric.reporters",
        "kafka.partition.assignment.strategy",
        "kafka.key.deserializer",
        "kafka.value.deserializer",
    ],
)
def test_kafka_options_that_run_code_are_rejected(option: str) -> None:
    assert refusals({option: "env:X"}) == {option: "insecure-option"}


@pytest.mark.parametrize(
    "option",
    [
        "subscribe",
        "subscribePattern",
        "assign",
        "startingOffsets",
        "startingoffsets",
        "startingTimestamp",
        "startingOffsetsByTimestamp",
        "endingOffsets",
        "maxOffsetsPerTrigger",
        "failOnDataLoss",
        "includeHeaders",
        "kafka.bootstrap.servers",
        "kafka.security.protocol",
        "kafka.sasl.mechanism",
        "kafka.auto.offset.reset",
        "kafka.enable.auto.commit",
    ],
)
def test_kafka_options_that_headgate_sets_are_rejected(option: str) -> None:
    assert refusals({option: "x"}) == {option: "bad-value"}


@pytest.mark.parametrize(
    "option",
    [
        "kafka.ssl.keystore.password",
        "kafka.ssl.keystore.key",
        "kafka.ssl.truststore.password",
        "kafka.some.Token",
        "kafka.basic.auth.user.info",
        "kafka.my.credentials",
    ],
)
def test_kafka_options_that_are_secret_need_references(option: str) -> None:
    assert refusals({option: "x"}) == {option: "secret-in-file"}
    assert refusals({option: 1}) == {option: "secret-in-file"}
    assert kafka(options={option: "env:X"}).options == {option: Secret("env", "X")}


def test_each_invalid_kafka_option_is_a_finding() -> None:
    assert refusals({"assign": 1, "minPartitions": 1, "zebra": 1, "kafka.password": 1}) == {
        "assign": "bad-value",
        "zebra": "unknown-key",
        "kafka.password": "secret-in-file",
    }
