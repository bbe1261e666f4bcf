"""The pipeline: the model of a whole pipeline file."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    Field,
    ModelWrapValidatorHandler,
    PrivateAttr,
    ValidationError,
    model_validator,
)

from headgate.config.catalog import Catalog
from headgate.config.contract import Contract, ContractField
from headgate.config.envelopes import Confluent, Datastream, EnvelopeField
from headgate.config.expect import Expectations, check_patterns
from headgate.config.gold import ROUTE, GoldTables, check_names_are_free, check_sources
from headgate.config.grants import Grants, check_grants
from headgate.config.kafka import Kafka
from headgate.config.location import FileContext, is_below, is_remote
from headgate.config.maintain import MaintainField
from headgate.config.model import (
    ConfigModel,
    Path,
    combine_errors,
    invalid_at,
    invalid_at_paths,
    missing,
)
from headgate.config.names import ChangeTemplate, TableName, TableTemplate, around
from headgate.config.predict import (
    Predictions,
    Trainings,
    check_tables_are_free,
    check_topics,
    check_trained_names,
)
from headgate.config.registry import Registry, RegistryField
from headgate.config.secrets import (
    Secret,
    check_spark_setting,
    check_spark_value,
    settings_checked_by,
)
from headgate.config.shards import MAX_SHARDS, Stream
from headgate.config.sources import Files, SourceField, SourceKeys
from headgate.config.storage import Folder, Storage, declare_storage
from headgate.config.units import Duration, Size
from headgate.config.workflow import Workflow
from headgate.errors import InvalidPipeline, nearest, shown

FILES_TABLE = "_files"
"""The table of files read; no template produces a name with a leading `_`."""

RECORD_KEYS = ("registry", "bronze", "silver", "max_record_bytes", "shards", "predict", "train")
"""Keys only for a stream of records."""

CHANGE_KEYS = ("change_log", "merged", "history", "merge", "max_file_bytes")
"""Keys only for change files."""

_NAME = re.compile(r"[a-z][a-z0-9_-]{0,62}")

_EXAMPLE_TEMPLATES = {
    "change_log": "log_{database}_{table}",
    "merged": "now_{database}_{table}",
    "history": "history_{database}_{table}",
}


def _check_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise InvalidPipeline(
            "bad-value",
            f"cannot be {shown(name)}",
            "start with a lowercase letter, then up to 62 lowercase letters, digits, `_` and `-`",
        )
    return name


def _checkpoint_in_lake(fields: dict[str, Any]) -> str:
    return f"{fields['lake'].rstrip('/')}/_checkpoints/{fields['name']}"


class Merge(ConfigModel):
    """When and how change logs are merged into the merged and history tables."""

    every: Duration | None = None
    """How often to merge changes. Defaults to every batch."""

    metadata: bool = Field(default=True, strict=True)
    """Whether merged rows have columns with the metadata of their last change."""

    horizon: Duration = Duration(days=3650)
    """How long to keep tombstones of deleted rows, by the source's time. Later changes of such rows
    go to the quarantine."""

    spark_above: Size = Size.parse("2 GB")
    """Tables above this size are merged by Spark."""


class PipelineConfig(ConfigModel):
    """A pipeline from one source to one Delta table per route, or per table of a database.

        Pipeline(
            name="games",
            source=Kafka(servers="localhost:9092", topics=["games"]),
            registry="./schemas",
            envelope=Wrapper(
                message="wrapper", route="game_name", schema_id="schema_id", payload="payload"
            ),
            lake="./lake",
        )

        Pipeline(
            name="shop",
            source=Files(path="./landing"),
            envelope=Datastream(),
            lake="./lake",
            history="history_{database}_{table}",
        )

    `headgate.load` reads the same from a file. Paths become absolute either way; sizes, durations
    and the registry can be given as text, as in a file.
    """

    name: Annotated[str, AfterValidator(_check_name)] = Field(examples=["games"])
    """Name of the pipeline in its ledger and checkpoint. A renamed pipeline starts over."""

    source: SourceField = Field(
        examples=[{"kafka": {"servers": "localhost:9092", "topics": ["games"]}}],
    )
    """Source of records (`kafka`, `delta`) or of change files (`files`)."""

    envelope: EnvelopeField = Field(examples=["confluent", "datastream"])
    """Format around the payloads: `confluent`, `wrapper`, or `datastream` for change files."""

    lake: Folder = Field(examples=["./lake", "s3://bucket/lake"])
    """Folder of all tables, or its URL in an object storage."""

    checkpoint: Folder = Field(default_factory=_checkpoint_in_lake)
    """Folder of the checkpoint, or its URL. Defaults to `_checkpoints/NAME` in the lake."""

    storage: Storage = Storage()
    """How to reach the object storage of the URLs in this file."""

    catalog: Catalog | None = None
    """Catalog to register the tables in, so that any Spark session finds them by name."""

    grants: Grants = Field(default=(), examples=[[{"to": "analysts", "tables": "gold_*"}]])
    """Privileges on the tables in the catalog: a list with the keys below."""

    quarantine_table: TableName = Field(default="quarantine", alias="quarantine")
    """Table of records that could not land."""

    ledger: TableName = "ledger"
    """Table that records what each batch did."""

    contract: ContractField = Contract()
    """What happens when a schema changes: one mode for all changes, or the keys below."""

    expect: Expectations = Field(
        default_factory=dict,
        examples=[{"silver_*": {"valid_user": {"rule": "user_name IS NOT NULL"}}}],
    )
    """Rules that rows must pass, by table name pattern, then by rule name."""

    gold: GoldTables = Field(
        default_factory=dict,
        examples=[{"gold_{route}_rows": "SELECT count(*) AS number FROM silver"}],
    )
    """Tables derived from the landed ones, by name: a SELECT or a union. With `{route}` in the
    name, one table per landed table; otherwise one over all of them."""

    max_tables: int = Field(default=2000, strict=True, gt=0)
    """Maximum number of tables. Records of further routes go to the quarantine."""

    trigger: Duration = Duration(seconds=10)
    """How often a continuous run checks for new records."""

    maintain: MaintainField = Field(default=None, examples=[True])
    """Maintenance in the background of a run: `true`, or the keys below. Off by default."""

    workflow: Workflow | None = None
    """Tasks of the pipeline for a scheduler: Databricks, Airflow, systemd, cron, or
    `headgate workflow run` itself."""

    commit: Literal["auto", "delta-rs", "spark"] = "auto"
    """Engine that commits to the tables; `auto` uses delta-rs, or Spark for tables that it
    cannot write."""

    spark: Annotated[
        Mapping[str, str | Secret], settings_checked_by(check_spark_setting, check_spark_value)
    ] = Field(default_factory=dict)
    """Settings of the Spark session: `spark.*`. Secrets are references, such as `env:NAME` or
    `file:/path`."""

    registry: RegistryField | None = Field(default=None, examples=["./schemas"])
    """Schema registry: a URL, a folder, or the keys below. Required for a stream of records."""

    bronze: TableName | None = None
    """Table of undecoded payloads. Not written by default."""

    silver: TableTemplate = "silver_{route}"
    """Name template of the tables of decoded records, one per route."""

    max_record_bytes: Size = Size.parse("16 MB")
    """Maximum size of a record. Larger ones go to the quarantine."""

    shards: int = Field(default=1, strict=True, ge=1, le=MAX_SHARDS)
    """Number of streams that the routes are split over, each run by a process of its own:
    `headgate run --shard 1/4`."""

    predict: Predictions = Field(default_factory=dict)
    """Values that models predict as records land, by name."""

    train: Trainings = Field(default_factory=dict)
    """How the models of predictions are trained, by the name of the prediction."""

    change_log: ChangeTemplate = "log_{database}_{table}"
    """Name template of the change logs: all changes, one table per source table."""

    merged: ChangeTemplate | None = "{database}_{table}"
    """Name template of the merged tables, which have the current rows; `null` to disable."""

    history: ChangeTemplate | None = None
    """Name template of the history tables, which have every version of a row. Not written by
    default."""

    merge: Merge = Merge()
    """When and how changes are merged."""

    max_file_bytes: Size = Size.parse("1 GB")
    """Maximum size of a change file. Larger ones go to the quarantine."""

    _file: str | None = PrivateAttr(None)
    _stream: Stream | None = PrivateAttr(None)

    @property
    def file(self) -> str | None:
        """The path that the pipeline was loaded from, as given."""
        return self._file

    @property
    def stream(self) -> Stream:
        """The stream that a run lands: the only one, unless there are shards."""
        return self._stream or Stream(self.name)

    def on(self, stream: Stream) -> Self:
        """Return the pipeline of a run that lands this stream, with a checkpoint of its own."""
        suffix = stream.name.removeprefix(self.name)
        copy = self.model_copy(update={"checkpoint": f"{self.checkpoint}{suffix}"})
        copy._stream = stream
        return copy

    @property
    def lands_changes(self) -> bool:
        """Whether the source is change files of a database rather than a stream of records."""
        return isinstance(self.source, Files)

    @property
    def change_files(self) -> Files:
        """The source of a pipeline that lands changes."""
        assert isinstance(self.source, Files)
        return self.source

    @property
    def datastream(self) -> Datastream:
        """The envelope of a pipeline that lands changes."""
        assert isinstance(self.envelope, Datastream)
        return self.envelope

    @property
    def schema_registry(self) -> Registry:
        """The registry, which every stream of records has."""
        assert self.registry is not None
        return self.registry

    @property
    def gold_source(self) -> str:
        """The name of the landed tables in `gold` declarations."""
        return "merged" if self.lands_changes else "silver"

    @property
    def own_tables(self) -> Mapping[str, str]:
        """Names of the tables that exist once, by the key that names them."""
        own = {"ledger": self.ledger, "quarantine": self.quarantine_table}
        if self.lands_changes:
            return {**own, "files": FILES_TABLE}
        return {**own, "bronze": self.bronze} if self.bronze else own

    @property
    def prediction_tables(self) -> Mapping[str, str]:
        """Tables of predictions, by the name of the prediction."""
        return {name: each.to.table or name for name, each in self.predict.items()}

    def model_uri(self, prediction: str) -> str:
        """Return the model of a prediction in MLflow's registry."""
        return self.predict[prediction].model or f"models:/{self.name}-{prediction}@serving"

    @property
    def templates(self) -> Mapping[str, str]:
        """Templates of the landed tables, by the key that names them."""
        if not self.lands_changes:
            return {"silver": self.silver}
        given = {"change_log": self.change_log, "merged": self.merged, "history": self.history}
        return {key: template for key, template in given.items() if template}

    def model_post_init(self, context: object) -> None:
        if isinstance(context, FileContext):
            self._file = context.file

    @model_validator(mode="after")
    def _source_matches_envelope(self) -> Self:
        if self.lands_changes and not isinstance(self.envelope, Datastream):
            error = InvalidPipeline(
                "bad-choice",
                "is for streams of records",
                "change files come with `envelope: datastream`",
            )
            raise invalid_at({"envelope": error})
        if not self.lands_changes and isinstance(self.envelope, Datastream):
            error = InvalidPipeline(
                "bad-choice",
                "is for streams of records",
                "`envelope: datastream` opens change files: `source: {files: {path: ./landing}}`",
            )
            raise invalid_at({"source": error})
        return self

    @model_validator(mode="wrap")
    @classmethod
    def _keys_apply_to_the_source(
        cls, written: object, validate: ModelWrapValidatorHandler[Self]
    ) -> Self:
        """Report keys that do not apply to this source together with all other errors."""
        if not isinstance(written, Mapping):
            return validate(written)
        changes = _declares_changes(written)
        other = "streams of records" if changes else "change files, `source: {files: …}`"
        foreign: dict[str | int, InvalidPipeline] = {
            key: InvalidPipeline("unknown-key", "does not apply here", f"it is for {other}")
            for key in (RECORD_KEYS if changes else CHANGE_KEYS)
            if key in written and written[key] != cls.model_fields[key].default
        }
        errors = [invalid_at(foreign)] if foreign else []
        if not changes and not _opens_changes(written) and "registry" not in written:
            errors.append(missing("registry"))
        try:
            pipeline = validate({key: written[key] for key in written if key not in foreign})
        except ValidationError as error:
            raise combine_errors([error, *errors]) if errors else error from None
        if errors:
            raise combine_errors(errors)
        return pipeline

    @model_validator(mode="after")
    def _table_names_are_distinct(self) -> Self:
        for (one, name), (other, other_name) in combinations(self.own_tables.items(), 2):
            if name == other_name:
                given, taken = self._blamed_and_other(one, other)
                message = f"cannot be {shown(name)}: that is the name of `{taken}`"
                raise invalid_at({given: InvalidPipeline("bad-value", message)})
        return self

    @model_validator(mode="after")
    def _templates_are_distinct(self) -> Self:
        """Require a distinct prefix or suffix per kind of table."""
        templates = self.templates
        for (one, first), (other, second) in combinations(templates.items(), 2):
            if around(first) == around(second):
                given, taken = self._blamed_and_other(one, other)
                error = InvalidPipeline(
                    "bad-template",
                    f"produces the same names as `{taken}`: {shown(templates[taken])}",
                    f"use a different prefix or suffix: `{_EXAMPLE_TEMPLATES[given]}`",
                )
                raise invalid_at({given: error})
        return self

    @model_validator(mode="after")
    def _lake_is_outside_the_source(self) -> Self:
        if not isinstance(self.source, Files):
            return self
        lake, landing = self.lake, self.source.path
        if is_below(lake, landing):
            message = f"is inside `source.files.path`: {shown(self.source.path)}"
            hint = "its own tables would be read as change files"
            raise invalid_at({"lake": InvalidPipeline("bad-value", message, hint)})
        return self

    @model_validator(mode="after")
    def _storage_has_urls(self) -> Self:
        if self.storage != Storage() and not self.urls:
            message = "has no effect: nothing in this file is in an object storage"
            raise invalid_at({"storage": InvalidPipeline("bad-value", message)})
        declare_storage(self.storage, *self.urls)
        return self

    @property
    def urls(self) -> Sequence[str]:
        """What the pipeline reads and writes in an object storage."""
        source = () if isinstance(self.source, Kafka) else (self.source.path,)
        return [place for place in (self.lake, self.checkpoint, *source) if is_remote(place)]

    @property
    def secrets(self) -> list[Secret]:
        """Every secret that the pipeline refers to, once."""
        models = [self.storage, self.registry, getattr(self.source, "security", None)]
        values: list[object] = [*self.spark.values(), *self.storage.options.values()]
        values += getattr(self.source, "options", {}).values()
        values += [value for model in models if model is not None for _, value in model]
        return list(dict.fromkeys(each for each in values if isinstance(each, Secret)))

    @model_validator(mode="after")
    def _tasks_fit_the_pipeline(self) -> Self:
        tasks = self.workflow.tasks if self.workflow else {}
        reason = "has nothing to train: the pipeline has no `train`"
        errors: dict[Path, InvalidPipeline] = {
            ("workflow", "tasks", name, "do"): InvalidPipeline("bad-value", reason)
            for name, task in tasks.items()
            if task.do == "train" and not self.train
        }
        if errors:
            raise invalid_at_paths(errors)
        return self

    @model_validator(mode="after")
    def _shards_know_routes(self) -> Self:
        by_schema = isinstance(self.envelope, Confluent) and self.envelope.route == "record"
        if self.shards > 1 and by_schema:
            message = "cannot be more than 1 with `envelope.confluent.route: record`"
            hint = "a shard has to know the route of a record without its schema"
            raise invalid_at({"shards": InvalidPipeline("bad-value", message, hint)})
        return self

    @model_validator(mode="after")
    def _merge_has_a_target(self) -> Self:
        if not self.lands_changes or self.merged is not None:
            return self
        if "merge" in self.model_fields_set and self.history is None:
            message = "has no effect without `merged` or `history`"
            raise invalid_at({"merge": InvalidPipeline("bad-value", message)})
        if self.gold:
            message = "has nothing to read without `merged`"
            raise invalid_at({"gold": InvalidPipeline("bad-value", message)})
        return self

    @model_validator(mode="after")
    def _gold_sources_exist(self) -> Self:
        check_sources(self.gold, self.gold_source)
        return self

    @model_validator(mode="after")
    def _gold_names_are_distinct(self) -> Self:
        check_names_are_free(self.gold, self._names_of_others)
        return self

    @model_validator(mode="after")
    def _predictions_fit_the_pipeline(self) -> Self:
        check_trained_names(self.train, self.predict)
        check_topics(self.predict, isinstance(self.source, Kafka))
        gold = {f"gold.{name}": name for name in self.gold}
        others = {**self._names_of_others, **gold}
        check_tables_are_free(self.predict, self.prediction_tables, others)
        return self

    @model_validator(mode="after")
    def _expectations_match_landed_tables(self) -> Self:
        check_patterns(self.expect, self.templates.values())
        return self

    @model_validator(mode="after")
    def _grants_fit_the_catalog(self) -> Self:
        templates = [*self.templates.values(), *self.gold, *self.prediction_tables.values()]
        check_grants(self.grants, self.catalog, [*templates, *self.own_tables.values()])
        return self

    @property
    def _names_of_others(self) -> Mapping[str, str]:
        """Names and templates that declared tables must not have, by the key that names them.

        Templates without prefix and suffix avoid taken names at run time.
        """
        apart = {
            key: each for key, each in self.templates.items() if any(around(each)) or each == ROUTE
        }
        return {**self.own_tables, **apart}

    def _blamed_and_other(self, one: str, other: str) -> tuple[str, str]:
        """Return the key to report first: the one that the file sets, if the other is a default."""
        fields = type(self).model_fields
        given = {fields[name].alias or name for name in self.model_fields_set}
        return (other, one) if other in given else (one, other)

    def __eq__(self, other: object) -> bool:
        """Compare the declarations, not the files that they were loaded from."""
        return type(other) is type(self) and dict(self) == dict(other)


def _declares_changes(written: Mapping[Any, object]) -> bool:
    """Whether the source, perhaps mistyped, or the envelope is that of change files."""
    source = written.get("source")
    if isinstance(source, ConfigModel):
        return isinstance(source, Files)
    chosen = [*source] if isinstance(source, Mapping) else [source]
    known = [nearest(str(key), list(SourceKeys.model_fields)) for key in chosen]
    if any(known):
        return "files" in known
    return _opens_changes(written)


def _opens_changes(written: Mapping[Any, object]) -> bool:
    envelope = written.get("envelope")
    keys = [*envelope] if isinstance(envelope, Mapping) else [envelope]
    return "datastream" in keys or isinstance(envelope, Datastream)
