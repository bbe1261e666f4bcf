"""A Kafka broker in one JVM: KRaft, one node, bound to localhost."""

from __future__ import annotations

import base64
import os
import subprocess
import uuid
from collections.abc import Mapping
from pathlib import Path

from headgate.errors import SetupError
from headgate.jars.jars import jar_paths
from headgate.jars.java import find_java
from headgate.lab.process import HOST, DetachedProcess, is_listening, start_detached

NAME = "broker"
# A short-lived, I/O-bound process: fast startup matters more than optimised code.
_JVM = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")

_LOGGING = """\
status = error
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{ISO8601} %p %m (%c{1})%n%throwable{short.message}
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
# Warns on every first start that the metadata log is empty.
logger.activation.name = org.apache.kafka.controller.QuorumController
logger.activation.level = error
"""


def start_broker(
    folder: Path,
    port: int,
    controller_port: int,
    advertised_port: int | None = None,
    further: Mapping[str, str] | None = None,
) -> DetachedProcess:
    """Start the broker on its data in `<folder>/kafka`, without waiting until it is ready.

    With a proxy before the broker, clients connect to its port, the `advertised_port`. Further
    settings replace those of `server_properties`.
    """
    home = folder / "kafka"
    home.mkdir(parents=True, exist_ok=True)
    properties_file = home / "server.properties"
    properties = server_properties(home / "data", port, controller_port, advertised_port)
    # The last line of a setting counts.
    properties_file.write_text(properties + _properties(further or {}), "ascii")
    (home / "log4j2.properties").write_text(_LOGGING, "ascii")
    if not (home / "data" / "meta.properties").exists():
        _format(home, properties_file)
    return start_detached(NAME, [*_java(home), "kafka.Kafka", str(properties_file)], folder)


def broker_answers(port: int) -> bool:
    """Return whether a broker on the port accepts requests."""
    if not is_listening(port):
        return False
    # Imported here: slow, and not needed by commands that only read addresses.
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    client = AdminClient({"bootstrap.servers": f"{HOST}:{port}", "log_level": 0})
    try:
        return bool(client.list_topics(timeout=1.0).brokers)
    except KafkaException:
        return False


def server_properties(
    data: Path, port: int, controller_port: int, advertised_port: int | None = None
) -> str:
    """Return the broker's settings: unlimited retention, no automatic topic creation."""
    if "," in str(data):
        raise SetupError(
            "service-failed",
            f"Kafka does not accept a comma in the path of its data: {data}",
            hint="choose a folder without a comma in its path",
        )
    settings = {
        "process.roles": "broker,controller",
        "node.id": "1",
        # Not the newer quorum.bootstrap.servers: it stores the controller's port in the data, but
        # the next start may use another port.
        "controller.quorum.voters": f"1@{HOST}:{controller_port}",
        "listeners": f"BROKER://{HOST}:{port},CONTROLLER://{HOST}:{controller_port}",
        "advertised.listeners": f"BROKER://{HOST}:{advertised_port or port}",
        "listener.security.protocol.map": "BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "BROKER",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": str(data),
        "log.retention.ms": "-1",
        "auto.create.topics.enable": "false",
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "share.coordinator.state.topic.num.partitions": "1",
        "group.initial.rebalance.delay.ms": "0",
        # A killed broker can register again only after its old session has expired.
        "broker.session.timeout.ms": "4000",
        "broker.heartbeat.interval.ms": "1000",
    }
    return _properties(settings)


def _properties(settings: Mapping[str, str]) -> str:
    return "".join(f"{key}={_escaped(value)}\n" for key, value in settings.items())


def _format(home: Path, properties_file: Path) -> None:
    cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    tool = ["kafka.tools.StorageTool", "format"]
    # With `=`, because an id may begin with a dash.
    tool += [f"--cluster-id={cluster}", f"--config={properties_file}"]
    run = subprocess.run(
        [*_java(home), *tool], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    if run.returncode != 0:
        output = run.stdout.decode("utf-8", "replace").strip()
        raise SetupError(
            "service-failed",
            f"cannot format the broker's data folder:\n{output}",
            hint=f"if you do not need its data, delete {home} and try again",
        )


def _java(home: Path) -> list[str]:
    classpath = os.pathsep.join(str(jar) for jar in jar_paths("kafka"))
    logging = f"-Dlog4j2.configurationFile={home / 'log4j2.properties'}"
    return [str(find_java().path), *_JVM, logging, "-cp", classpath]


def _escaped(value: str) -> str:
    # Java reads properties files as Latin-1 with \\u escapes.
    text = value.replace("\\", "\\\\")
    return "".join(char if char.isascii() else _utf16_escapes(char) for char in text)


def _utf16_escapes(char: str) -> str:
    units = char.encode("utf-16-be").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
