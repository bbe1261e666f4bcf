"""Which options of Spark's Kafka source the pipeline file may set."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated

from headgate.pipeline.finding import InvalidPipeline
from headgate.pipeline.secret import Secret
from headgate.pipeline.settings import settings_checked_by
from headgate.pipeline.wording import did_you_mean

# Spark's own; everything else is Kafka's and starts with `kafka.`.
_SPARK_OPTIONS = (
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "groupIdPrefix",
    "kafkaConsumer.pollTimeoutMs",
    "maxRecordsPerPartition",
    "maxTriggerDelay",
    "minOffsetsPerTrigger",
    "minPartitions",
    "startingOffsetsByTimestampStrategy",
)

_OWNED: Mapping[str, str] = {
    "assign": "name the topics under `topics`",
    "subscribe": "name the topics under `topics`",
    "subscribepattern": "write it as `pattern`",
    "startingoffsets": "write it as `start`",
    "startingoffsetsbytimestamp": "write it as `start`",
    "startingtimestamp": "write it as `start`",
    "kafka.auto.offset.reset": "write it as `start`",
    "endingoffsets": "a run ends when it is caught up or stopped",
    "endingoffsetsbytimestamp": "a run ends when it is caught up or stopped",
    "endingtimestamp": "a run ends when it is caught up or stopped",
    "maxoffsetspertrigger": "write it as `batch`",
    "kafka.bootstrap.servers": "write it as `servers`",
    "kafka.security.protocol": "write it as `security: {protocol: …}`",
    "kafka.sasl.mechanism": "write it as `security: {mechanism: …}`",
    "kafka.enable.auto.commit": "progress is kept in the checkpoint",
    "failondataloss": "lost records always stop a run, so that none is lost unseen",
    "includeheaders": "headers are always read",
}

# These name classes, commands, files or addresses that the client would load, run or call.
_INSECURE = re.compile(
    r"kafka\.(?:"
    r"sasl\.jaas\.config"
    r"|sasl\.oauthbearer\..*(?:url|file)"
    r"|sasl\.kerberos\.kinit\.cmd"
    r"|(?:.*\.)?(?:class|classes|providers|reporters|(?:de)?serializer)"
    r"|partition\.assignment\.strategy"
    r")"
)

_LOGIN = "to log in, write `security: {mechanism: …, username: …, password: …}`"


def check_kafka_option(key: str) -> None:
    # Spark does not tell small and capital letters apart in the names of options.
    lower = key.lower()
    if hint := _OWNED.get(lower):
        raise InvalidPipeline("bad-value", "is not an option: Headgate sets it itself", hint)
    if _INSECURE.fullmatch(lower):
        raise InvalidPipeline(
            "insecure-option",
            "is not let through: it can run code, read files or call other servers",
            _LOGIN if ".sasl." in lower else None,
        )
    if not lower.startswith("kafka.") and key not in _SPARK_OPTIONS:
        kafka_hint = f"Kafka's own options start with `kafka.`: `kafka.{key}`"
        raise InvalidPipeline(
            "unknown-key",
            "is not an option of Spark's Kafka source",
            kafka_hint if "." in key else did_you_mean(key, _SPARK_OPTIONS) or kafka_hint,
        )


KafkaOptions = Annotated[Mapping[str, str | Secret], settings_checked_by(check_kafka_option)]
