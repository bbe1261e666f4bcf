"""Settings that are passed on to Spark or Kafka as they are, secrets excepted."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from pydantic import PlainValidator, ValidationInfo

from headgate.pipeline.finding import InvalidPipeline
from headgate.pipeline.place import folder_of, refuse_credentials
from headgate.pipeline.refused_at import refused_at
from headgate.pipeline.secret import Secret
from headgate.pipeline.wording import shown

_SECRET_KEY = re.compile(
    r"password|secret|token|jaas|credential|keystore|basic\.?auth|user\.?info", re.IGNORECASE
)
_HARMLESS_KEY = re.compile(r"\.(enabled|file|location|path|provider|type)$", re.IGNORECASE)
_SECRET_VALUE = re.compile(r"(password|secret|token)[^\s=]*\s*=", re.IGNORECASE)
_ENVIRONMENT = re.compile(r"env:\w+", re.ASCII)


def needs_reference(key: str) -> bool:
    """Whether the value of such a setting is a secret."""
    return bool(_SECRET_KEY.search(key)) and not _HARMLESS_KEY.search(key)


def read_setting(key: str, value: object, folder: str) -> str | Secret:
    """The setting as the text that Spark takes, or as a reference to a secret."""
    match value:
        case Secret():
            return value
        case str() if needs_reference(key) or _ENVIRONMENT.fullmatch(value):
            return Secret.parse(value, folder)
        case _ if needs_reference(key):
            return Secret.parse("")
        case bool():
            return str(value).lower()
        case int() | float():
            return str(value)
        case str() if _SECRET_VALUE.search(value):
            raise InvalidPipeline(
                "secret-in-file",
                "has a secret inside its value",
                "use a setting that takes the secret alone, as a reference such as `env:NAME`",
            )
        case str():
            return refuse_credentials(value)
        case _:
            raise InvalidPipeline("wrong-type", f"needs text or a number, not {shown(value)}")


def settings_checked_by(check: Callable[[str], None]) -> PlainValidator:
    """Reads a mapping of settings; every key that is refused is a finding of its own."""

    def read(value: object, info: ValidationInfo) -> Mapping[str, str | Secret]:
        if not isinstance(value, Mapping):
            raise InvalidPipeline("wrong-type", f"needs keys and values, not {shown(value)}")
        settings: dict[str, str | Secret] = {}
        refused: dict[str | int, InvalidPipeline] = {}
        for key, each in value.items():
            try:
                check(str(key))
                settings[str(key)] = read_setting(str(key), each, folder_of(info))
            except InvalidPipeline as error:
                refused[str(key)] = error
        if refused:
            raise refused_at(refused)
        return settings

    return PlainValidator(read, json_schema_input_type=dict[str, str | int | float | bool])


def check_spark_setting(key: str) -> None:
    if not key.startswith("spark."):
        raise InvalidPipeline(
            "unknown-key", "is not a setting of Spark", f"did you mean `spark.{key}`?"
        )
