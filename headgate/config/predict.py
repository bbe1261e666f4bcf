"""Predictions: a value per key, scored by a model as records land, and how the model is trained."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Annotated, Literal, TypeAlias

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo

from headgate.config.gold import names_may_collide
from headgate.config.kafka import check_topic
from headgate.config.location import absolute, folder_of
from headgate.config.model import ConfigModel, Path, invalid_at, invalid_at_paths
from headgate.config.names import TableName, check_table_name
from headgate.config.units import Duration
from headgate.errors import InvalidPipeline, did_you_mean, listed, shown

_FILE_ENDING = ".sql"
_LARGEST_FILE = 1_000_000


def _read_sql(written: object, info: ValidationInfo) -> object:
    """Return the SQL of a file that is given by its path; SQL itself stays as it is."""
    if not isinstance(written, str) or not is_sql_file(written):
        return written
    file = absolute(written.strip(), folder_of(info))
    try:
        with open(file, "rb") as opened:
            sql = opened.read(_LARGEST_FILE + 1).decode("utf-8-sig")
    except OSError as error:
        hint = "the path is relative to the pipeline file"
        message = f"cannot read {shown(written)}: {error.strerror}"
        raise InvalidPipeline("bad-value", message, hint) from None
    except UnicodeDecodeError:
        raise InvalidPipeline("bad-value", f"{shown(written)} is not UTF-8 text") from None
    if len(sql) > _LARGEST_FILE:
        raise InvalidPipeline("bad-value", f"{shown(written)} is larger than 1 MB")
    try:
        _check_sql(sql)
    except InvalidPipeline as error:
        raise in_sql_file(error, written.strip()) from None
    return sql


def is_sql_file(written: str) -> bool:
    """Whether a text is the path of a `.sql` file, and not SQL itself."""
    text = written.strip()
    return text.lower().endswith(_FILE_ENDING) and len(text.splitlines()) == 1


def in_sql_file(error: InvalidPipeline, file: str) -> InvalidPipeline:
    """Put the position in the SQL file into the message; the finding has that of its path."""
    where = ":".join(map(str, (os.path.basename(file), *(error.inside or ()))))
    separator = ": " if error.message.startswith("`") else " "
    return InvalidPipeline(error.code, f"`{where}`{separator}{error.message}", error.hint)


def _check_sql(sql: str) -> str:
    from headgate.sql.parse import bad_sql
    from headgate.sql.query import parse_query

    if parse_query(sql).emits_changes:
        raise bad_sql("has EMIT CHANGES", "remove it: the query is run as rows arrive")
    return sql


SqlText: TypeAlias = Annotated[str, BeforeValidator(_read_sql), AfterValidator(_check_sql)]
"""A SELECT, or the path of a `.sql` file that has it, relative to the pipeline file."""


def _check_column(name: str) -> str:
    if not name.strip() or not name.isprintable() or "`" in name:
        raise InvalidPipeline("bad-value", f"cannot be {shown(name)}", "write a column's name")
    return name


Column: TypeAlias = Annotated[str, AfterValidator(_check_column)]


def _check_model(uri: str) -> str:
    name, separator, version = uri.removeprefix("models:/").partition("@")
    if not separator:
        name, separator, version = name.partition("/")
    if not uri.startswith("models:/") or not (name and version) or not uri.isprintable():
        raise InvalidPipeline(
            "bad-value",
            f"cannot be {shown(uri)}",
            "write `models:/NAME@ALIAS`, or `models:/NAME/VERSION` for a fixed version",
        )
    return uri


class PredictTo(ConfigModel):
    """Where predictions go: a table, and optionally a topic."""

    table: TableName | None = None
    """Table of the predictions. Defaults to the name of the prediction."""

    topic: Annotated[str, AfterValidator(check_topic)] | None = None
    """Topic to publish predictions to, on the brokers of the source, in Avro: the latest schema of
    the subject `TOPIC-value`. Not published by default."""

    field: Column | None = None
    """Field of the topic's schema that gets the predicted value. Defaults to its only numeric field
    besides the key and the times."""


class Predict(ConfigModel):
    """A value that a model predicts per key, from rows of the last while."""

    features: SqlText = Field(examples=["features.sql"])
    """SELECT of the features, or the path of a `.sql` file: one row of aggregates. It sees only
    rows of one key, up to the time of scoring, which it calls `moment`."""

    model: Annotated[str, AfterValidator(_check_model)] | None = None
    """Model in MLflow's registry. Defaults to `models:/PIPELINE-NAME@serving`."""

    key: Column = Field(examples=["store_id"])
    """Column that identifies what is predicted for; all tables of `features` have it."""

    time: Column | None = None
    """Column with the event time, in all tables of `features`. Defaults to the timestamp of the
    record, `_timestamp`."""

    window: Duration = Field(examples=["4 hours"])
    """How far back a feature may look."""

    every: Duration = Duration(seconds=2)
    """How often to score all active keys again, as time passes. Keys with new rows are scored with
    every batch."""

    fallback: SqlText | None = None
    """SELECT of the key and a value, used for keys without a prediction by a model: before there is
    one, or if it cannot be loaded."""

    to: PredictTo = PredictTo()
    """Where predictions go."""


class Train(ConfigModel):
    """How the model of a prediction is trained."""

    label: SqlText = Field(examples=["labels.sql"])
    """SELECT of what turned out to be true, or the path of a `.sql` file: the key, `at` (time of
    the prediction), `known_at` (when the truth was known) and `label` (a number)."""

    every: Duration | None = None
    """How often to train again. Defaults to only when asked to, or when predictions get worse."""

    promote: Literal["when_better", "never"] = "when_better"
    """Whether a newly trained model serves once it predicts better than the one that serves."""


def _check_names(predict: Mapping[str, Predict]) -> Mapping[str, Predict]:
    errors: dict[str | int, InvalidPipeline] = {}
    for name in predict:
        try:
            check_table_name(name)
            if "{" in name:
                raise InvalidPipeline("bad-template", "is one table: it cannot have placeholders")
        except InvalidPipeline as error:
            errors[name] = error
    if errors:
        raise invalid_at(errors)
    return predict


Predictions: TypeAlias = Annotated[Mapping[str, Predict], AfterValidator(_check_names)]
"""Predictions by name."""

Trainings: TypeAlias = Mapping[str, Train]
"""How models are trained, by the name of their prediction."""


def check_trained_names(train: Iterable[str], predict: Iterable[str]) -> None:
    """Raise if the pipeline trains what it does not predict."""
    known = list(predict)
    errors: dict[Path, InvalidPipeline] = {}
    for name in train:
        if name not in known:
            known_names = f"`predict` has {listed(known)}" if known else "declare it in `predict`"
            hint = did_you_mean(name, known) or known_names
            message = "is not the name of a prediction"
            errors["train", name] = InvalidPipeline("bad-value", message, hint)
    if errors:
        raise invalid_at_paths(errors)


def check_topics(predict: Mapping[str, Predict], has_brokers: bool) -> None:
    """Raise if predictions are to be published but the source has no brokers."""
    errors: dict[Path, InvalidPipeline] = {}
    for name, declared in predict.items():
        if declared.to.field is not None and declared.to.topic is None:
            message = "has no effect without `topic`"
            errors["predict", name, "to", "field"] = InvalidPipeline("bad-value", message)
        if declared.to.topic is not None and not has_brokers:
            message = "needs brokers to publish to"
            hint = "predictions go to the brokers of a Kafka source: `source: {kafka: …}`"
            errors["predict", name, "to", "topic"] = InvalidPipeline("bad-value", message, hint)
    if errors:
        raise invalid_at_paths(errors)


def check_tables_are_free(
    predict: Mapping[str, Predict], tables: Mapping[str, str], others: Mapping[str, str]
) -> None:
    """Raise if a table of predictions may have the name of another table; `others` by their key."""
    errors: dict[Path, InvalidPipeline] = {}
    earlier: dict[str, str] = {}
    for name, table in tables.items():
        for key, other in {**others, **earlier}.items():
            if names_may_collide(table, other):
                path: Path = ("predict", name)
                if predict[name].to.table is not None:
                    path = (*path, "to", "table")
                errors[path] = InvalidPipeline(
                    "bad-value",
                    f"would be a table with a name of `{key}`: {shown(other)}",
                    "choose another: `to: {table: …}`",
                )
        earlier[f"predict.{name}"] = table
    if errors:
        raise invalid_at_paths(errors)
