"""Generates docs/reference from the code, so that it cannot drift."""

from __future__ import annotations

import re
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from pydantic import BaseModel

REFERENCE = Path(__file__).parent / "reference"


def pages() -> dict[str, str]:
    """Every generated page by its file's name."""
    return {
        "pipeline-file.md": _pipeline_file(),
        "commands.md": _commands(),
        "errors.md": _errors(),
        "quarantine.md": _quarantine(),
        "tables.md": _tables(),
        "evolution.md": _evolution(),
        "types.md": _types(),
        "features.md": _features(),
    }


def _pipeline_file() -> str:
    from headgate.config import (
        Airflow,
        Cluster,
        Confluent,
        Contract,
        Databricks,
        Datastream,
        Delta,
        Email,
        Expectation,
        Files,
        GoldUnion,
        Grant,
        Kafka,
        Maintain,
        Merge,
        Notify,
        PipelineConfig,
        Predict,
        PredictTo,
        Registry,
        Security,
        Storage,
        Task,
        Train,
        Workflow,
        Wrapper,
    )
    from headgate.config.pipeline import CHANGE_KEYS, RECORD_KEYS

    text = (
        "# Pipeline file\n\n"
        "A file declares a stream of records, or a folder of change files of a database: `source:"
        " {files: …}` with `envelope: datastream`. Unknown keys are errors. Relative paths are"
        " resolved against the folder of the file.\n"
    )
    text += _keys("Every file", PipelineConfig, leave_out=(*RECORD_KEYS, *CHANGE_KEYS))
    text += _keys("A stream of records", PipelineConfig, only=RECORD_KEYS)
    text += _keys("Change files", PipelineConfig, only=CHANGE_KEYS) + _names_of_changes()
    after = {Contract: _other_tools_modes(), Expectation: _EXPECT, GoldUnion: _gold()}
    for title, model in (
        ("`source.kafka`", Kafka),
        ("`source.kafka.security`", Security),
        ("`source.delta`", Delta),
        ("`source.files`", Files),
        ("`registry`", Registry),
        ("`envelope.wrapper`", Wrapper),
        ("`envelope.confluent`", Confluent),
        ("`envelope.datastream`", Datastream),
        ("`merge`", Merge),
        ("`storage`", Storage),
        ("`grants`", Grant),
        ("`maintain`", Maintain),
        ("`contract`", Contract),
        ("`expect`", Expectation),
        ("`gold`", GoldUnion),
        ("`predict`", Predict),
        ("`predict.to`", PredictTo),
        ("`train`", Train),
        ("`workflow`", Workflow),
        ("`workflow.tasks`", Task),
        ("`workflow.notify`", Notify),
        ("`workflow.email`", Email),
        ("`workflow.airflow`", Airflow),
        ("`workflow.databricks`", Databricks),
        ("`workflow.databricks.clusters`", Cluster),
    ):
        text += _keys(title, model)
        text += after.get(model, "")
    return text


def _keys(
    title: str,
    model: type[BaseModel],
    only: Collection[str] | None = None,
    leave_out: Collection[str] = (),
) -> str:
    text = f"\n## {title}\n\n| key | default | meaning |\n|---|---|---|\n"
    for name, field in model.model_fields.items():
        if name in (only or model.model_fields) and name not in leave_out:
            key, meaning = field.alias or name, _one_line(field.description)
            text += f"| `{key}` | {_default(field)} | {meaning} |\n"
    return text


def _names_of_changes() -> str:
    from headgate.config import PipelineConfig
    from headgate.config.names import PLACEHOLDERS
    from headgate.lake.names import ChangeTables

    fields = PipelineConfig.model_fields
    names = ChangeTables(
        fields["change_log"].get_default(), "quarantine", "ledger", fields["merged"].get_default()
    )
    text = (
        f"\nTemplates may use {', '.join(f'`{each}`' for each in PLACEHOLDERS)}. If a source has no"
        " database, its schema is used instead, and vice versa. Names are safe to use as folders,"
        " and unique per source table unless the template omits what distinguishes them:\n\n"
        "| database | table | `change_log` | `merged` |\n|---|---|---|---|\n"
    )
    for database, table in (
        ("shop", "order_lines"),
        ("my_shop", "orders"),
        ("my", "shop_orders"),
        ("Shop", "orders"),
        ("log", "shop_orders"),
    ):
        source = _Source(database, None, table)
        made = f"`{names.log_for(source)}` | `{names.merged_for(source)}`"
        text += f"| `{database}` | `{table}` | {made} |\n"
    return text


class _Source(NamedTuple):
    """A table of a source, as changes name it."""

    database: str | None
    schema: str | None
    table: str


def _other_tools_modes() -> str:
    from headgate.config.contract import OTHER_TOOLS_MODES

    words = "".join(f"- `{word}`: {meant}\n" for word, meant in OTHER_TOOLS_MODES.items())
    return f"{_MODES}\nModes of other tools are rejected with a hint:\n\n{words}"


_MODES = """
`tables`, `columns` and `types` each take a mode:

- `evolve`: change the table to match
- `freeze`: keep the table; every record of the new schema goes to the quarantine
- `discard_row`: keep the table; records that carry such a value go to the quarantine
- `discard_value`: keep the table; records land without the value
"""


_EXPECT = """
Rules are listed by name under a table name pattern; a rule given as text alone warns. A row passes
only if the rule is true; null fails:

```yaml
expect:
  silver_*:
    valid_user: {rule: "user_name IS NOT NULL", on_fail: quarantine}
    positive: score >= 0
```
"""


def _gold() -> str:
    from headgate.config import GoldQuery
    from headgate.gold.declared import describe

    text = """
These are the keys of a union; a SELECT is written as text. `FROM silver` reads the landed tables,
`FROM merged` those of a pipeline of change files. Columns that a table lacks are null, and `route`
is available as a column. With `{route}` in its name, a declaration produces one table per landed
table; otherwise one over all of them. Columns that start with `_` are Headgate's own: state for
incremental updates, and the source table of each row in a union.

```yaml
gold:
  gold_{route}_player_agg: |
    SELECT user_name, count(*) AS sessions, min(event_timestamp) AS first_seen
    FROM silver GROUP BY user_name
  unified_gold:
    from: gold_*
    select: route, user_name, sessions, first_seen
```

The SELECT determines how a table is updated. `avg` is computed as the sum divided by the count, so
decimals have the type of that division. `approx_count_distinct` is Spark's `hll_sketch_estimate`.
Among values with the same time, `max_by` returns the greatest and `min_by` the least; both support
all types except maps.

| SELECT | update method |
|---|---|
"""
    for select in _SELECTS:
        shown = describe("", GoldQuery(sql=select)).removeprefix(": ")
        text += f"| `{select}` | {shown} |\n"
    return text


_SELECTS = (
    "SELECT user, count(*) AS n, max(score) AS best FROM silver GROUP BY user",
    "SELECT date(t) AS day, avg(score) AS mean FROM silver GROUP BY day",
    "SELECT user, max_by(level, t) AS level FROM silver GROUP BY user",
    "SELECT approx_count_distinct(user) AS users FROM silver",
    "SELECT count(DISTINCT user) AS users FROM silver",
    "SELECT user, first(level) AS level FROM silver GROUP BY user",
    "SELECT user, stddev(score) AS spread FROM silver GROUP BY user",
    "SELECT user, rank() OVER (ORDER BY score) AS place FROM silver",
    "SELECT user, upper(level) AS level FROM silver WHERE score > 0",
)


def _default(field: Any) -> str:
    if field.is_required():
        return "required"
    value = field.get_default() if field.default_factory is None else None
    # The defaults of a nested model are listed in its own section.
    if value is None or value == () or isinstance(value, BaseModel):
        return ""
    if isinstance(value, tuple):
        return ", ".join(f"`{one}`" for one in value)
    shown = str(value).lower() if isinstance(value, bool) else getattr(value, "value", value)
    return f"`{shown}`"


def _commands() -> str:
    from typer.main import get_command

    from headgate.cli.main import app

    text = "# Commands\n"
    root: Any = get_command(app)
    for name, command in _leaves(root, ()):
        context = command.make_context(" ".join(("headgate", *name)), [], resilient_parsing=True)
        context.max_content_width = context.terminal_width = 80
        text += f"\n## headgate {' '.join(name)}\n\n```text\n{command.get_help(context)}\n```\n"
    return text


def _leaves(group: Any, path: tuple[str, ...]) -> list[tuple[tuple[str, ...], Any]]:
    found = []
    for name, command in group.commands.items():
        if getattr(command, "hidden", False):
            continue
        if hasattr(command, "commands"):
            found += _leaves(command, (*path, name))
        else:
            found.append(((*path, name), command))
    return found


def _errors() -> str:
    from headgate.errors import CODES

    text = "# Error codes\n\nCodes are stable; messages may change.\n\n"
    text += "| code | meaning |\n|---|---|\n"
    return text + "".join(f"| `{code}` | {meaning} |\n" for code, meaning in CODES.items())


def _quarantine() -> str:
    from headgate.reasons import Reason

    text = "# Quarantine reasons\n\n| reason | meaning |\n|---|---|\n"
    return text + "".join(f"| `{reason.value}` | {reason.text} |\n" for reason in Reason)


_UNKNOWN_FIELDS = """\
A table with records that carry bytes which their own protobuf schema does not know has one more
column, `_unknown_fields` (binary), null in all other rows. It holds the unknown fields of the
message as they were sent, tags included, concatenated in the order of the payload. If any of
them is nested in another message, it holds the whole payload instead. Either way, a newer
version of the message can parse the bytes and has the unknown fields. Extensions that the
message allows are kept in the same way. [How schemas
change](../concepts/evolution.md#unknown-fields) says when bytes are kept."""


def _tables() -> str:
    from headgate.engine.quarantine_table import QUARANTINE
    from headgate.schema.origin import ORIGIN

    return (
        "# Tables\n\n## Silver\n\nThe columns of the message, and where the record came from:\n\n"
        + _columns(ORIGIN)
        + f"\n{_UNKNOWN_FIELDS}\n"
        + "\n## Bronze\n\n`route` (the partition), `payload`, and the same columns.\n"
        + "\n## Quarantine\n\n"
        + _columns(QUARANTINE)
        + "\n## Ledger\n\n"
        + _ledger()
    )


def _ledger() -> str:
    from headgate.lake.ledger_entries import ENTRY_TYPES, LEDGER, columns_of
    from headgate.schema.fit import type_name

    text = (
        "Each row has a kind, and only the columns of its kind.\n\n| kind | meaning |\n|---|---|\n"
    )
    for entry in ENTRY_TYPES:
        text += f"| `{entry.kind}` | {(entry.__doc__ or '').splitlines()[0]} |\n"
    text += "\n| column | type | meaning | kinds |\n|---|---|---|---|\n"
    for field in LEDGER:
        kinds = [f"`{entry.kind}`" for entry in ENTRY_TYPES if field.name in columns_of(entry)]
        meaning = field.metadata[b"comment"].decode()
        listed = ", ".join(kinds) or "all"
        text += f"| `{field.name}` | {type_name(field.type)} | {meaning} | {listed} |\n"
    return text


def _columns(schema: pa.Schema) -> str:
    from headgate.schema.fit import type_name

    rows = "".join(f"| `{field.name}` | {type_name(field.type)} |\n" for field in schema)
    return f"| column | type |\n|---|---|\n{rows}"


def _evolution() -> str:
    import yaml

    cases = yaml.safe_load((Path(__file__).parent / "evolution" / "cases.yaml").read_text())
    modes = ("evolve", "freeze", "discard_row", "discard_value")
    head = ("a newer schema has", "Protobuf", "Avro", "asks", *(f"`{mode}`" for mode in modes))
    text = (
        "# The matrix of schema changes\n\n"
        "What becomes of a record whose schema differs from its table, under each mode of the"
        " [contract](pipeline-file.md). Written from [cases.yaml](../evolution/cases.yaml), which"
        " the tests land record by record, with both committers; the stream is never restarted."
        " [How schemas change](../concepts/evolution.md) says what the words mean.\n\n"
        f"| {' | '.join(head)} |\n|{'---|' * len(head)}\n"
    )
    for case in cases:
        forms = {"Protobuf": case["protobuf"], "Avro": case["avro"]}
        asked = {
            form: list(dict.fromkeys(said.get("asks", case.get("asks"))))
            for form, said in forms.items()
        }
        same = asked["Protobuf"] == asked["Avro"]
        rows = ["Protobuf and Avro"] if same else list(forms)
        for row in rows:
            kinds = asked["Protobuf" if same else row]
            carries = case.get("carries", True)
            cells = [
                case["change"] if row == rows[0] else "",
                _change_of(case["protobuf"]) if row != "Avro" else "",
                _change_of(case["avro"]) if row != "Protobuf" else "",
                ", ".join(f"`{kind}`" for kind in kinds),
                *(_outcome_under(mode, kinds, carries) for mode in modes),
            ]
            text += f"| {' | '.join(cells)} |\n"
    return text


_ABOUT_FEATURES = """\
# Features of Delta

What each operation does with a table that has a feature of Delta, with `commit: auto`. Written from
[cells.yaml](../features/cells.yaml); the tests try every cell on a table that Spark has made, and
read the rows with Spark.

- **yes**: done by Headgate itself, without a Spark job for the commit.
- **by Kernel**: the files are added as they were staged, by Delta Kernel in the Java of Spark's
  driver.
- **by Spark**: committed by Spark's Delta writer.
- An error code, such as `DELTA_CANNOT_MODIFY_APPEND_ONLY`: refused before anything is written.
- *impossible*: Delta makes no such table.
- An empty cell was not tried yet.
"""
_OPERATIONS = {
    "Land and merge": {
        "land": "land",
        "land a new column": "… with a new column",
        "widen": "… with a wider type",
        "merge into": "merge into it",
        "compact": "compact",
    },
    "Change logs": {
        "merge from its log": "merge, with a key",
        "append from its log": "merge, without a key",
        "history from its log": "history",
        "rewind its log": "rewind",
        "verify with its log": "verify",
    },
    "Derived tables and queries": {
        "derive from": "derive from it",
        "derive into": "derive into it",
        "refresh": "refresh it",
        "pull query": "pull query",
        "push query": "push query",
    },
    "Upkeep": {
        "expire": "expire versions",
        "delete orphans": "delete orphans",
        "remove": "remove",
    },
}


def _features() -> str:
    import yaml

    cells = yaml.safe_load((Path(__file__).parent / "features" / "cells.yaml").read_text())
    text = _ABOUT_FEATURES
    for title, operations in _OPERATIONS.items():
        text += f"\n## {title}\n\n| table with | {' | '.join(operations.values())} |\n"
        text += f"|{'---|' * (len(operations) + 1)}\n"
        for feature, outcomes in cells.items():
            found = (outcomes.get(name, "") for name in operations)
            text += f"| {feature} | {' | '.join(map(_outcome_of_feature, found))} |\n"
    return text


def _outcome_of_feature(outcome: str) -> str:
    words = ("", "yes", "by Kernel", "by Spark", "impossible")
    return outcome if outcome in words else f"`{outcome}`"


def _types() -> str:
    import yaml

    folder = Path(__file__).parent / "types"
    protobuf, avro = (
        yaml.safe_load((folder / f"{name}.yaml").read_text()) for name in ("protobuf", "avro")
    )
    text = (
        "# Types\n\nWhich column a field of each type becomes; the tests hold both tables true. No"
        " value changes, and what Delta has no type for goes into one that holds it whole.\n"
    )
    for title, rows in (("Protobuf", protobuf), ("Avro", avro)):
        text += f"\n## {title}\n\n| {title} | column | |\n|---|---|---|\n"
        for row in rows:
            note = _one_line(row.get("note", ""))
            text += f"| `{row['type']}` | `{row['column']}` | {note} |\n"
    return text


def _change_of(said: dict[str, Any]) -> str:
    after = _declared(said["after"])
    if "before" not in said:
        return f"`{after}`"
    before = _declared(said["before"])
    return f"`{before}` → `{after}`" if before != after else f"`{before}`"


def _declared(schema: Any) -> str:
    if isinstance(schema, str):
        return schema.replace("|", "\\|")
    return ", ".join(f"{name}: {_avro_type(kind)}" for name, kind in schema.items())


def _avro_type(kind: Any) -> str:
    if isinstance(kind, list):
        return f"[{', '.join(map(_avro_type, kind))}]"
    if not isinstance(kind, dict):
        return str(kind)
    match kind["type"]:
        case "record":
            fields = (f"{one['name']}: {_avro_type(one['type'])}" for one in kind["fields"])
            return f"{kind['name']} {{{', '.join(fields)}}}"
        case "array":
            return f"array of {_avro_type(kind['items'])}"
        case "map":
            return f"map of {_avro_type(kind['values'])}"
        case "enum":
            return f"enum {'/'.join(kind['symbols'])}"
    digits = f"({kind['precision']},{kind['scale']})" if "precision" in kind else ""
    return f"{kind['logicalType']}{digits}"


def _outcome_under(mode: str, kinds: list[str], carries: bool) -> str:
    from headgate.config import Mode, Rules
    from headgate.schema.changes import change_types
    from headgate.schema.fit import outcome_of

    rules = Rules(tables=Mode(mode), columns=Mode(mode), types=Mode(mode))
    known = {kind.__name__: kind for kind in change_types()}
    outcomes = [str(outcome_of(known[kind], rules)) for kind in kinds]
    worst = max(dict.fromkeys(outcomes), key=_GRAVITY.index)
    return f"{worst}; this one lands" if worst == "quarantined" and not carries else worst


_GRAVITY = ["applied", "kept apart", "discarded", "quarantined", "refused"]


def _one_line(text: str | None) -> str:
    return re.sub(r"\s+", " ", text or "").replace("|", "\\|")


if __name__ == "__main__":
    REFERENCE.mkdir(exist_ok=True)
    for name, page in pages().items():
        (REFERENCE / name).write_text(page)
        print(f"docs/reference/{name}", file=sys.stderr)
