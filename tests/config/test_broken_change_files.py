from __future__ import annotations

import re
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.config import Datastream, Files, Merge, PipelineConfig, check_pipeline, load_pipeline
from headgate.errors import CODES

Write = Callable[[str], Path]

GOOD = """\
name: shop
source:
  files:
    path: ./landing
envelope: datastream
lake: ./lake
"""
FILES = "files:\n    path: ./landing\n"
PATH = "    path: ./landing\n"
ENVELOPE = "envelope: datastream\n"
END = "lake: ./lake\n"
RECORDS = "it is for streams of records"

# Old text, new text, expected code, line, and a part of the message or hint.
BROKEN = {
    # the two kinds of pipelines
    "records' envelope as a word": (
        ENVELOPE, "envelope: confluent\n", "bad-choice", 5, "come with `envelope: datastream`",
    ),
    "records' envelope": (
        ENVELOPE, "envelope:\n  confluent: {route: record}\n", "bad-choice", 5,
        "come with `envelope: datastream`",
    ),
    "records' source": (
        FILES, "kafka: {servers: 'a:1', topics: [a]}\n", "bad-choice", 2,
        "`source: {files: {path: ./landing}}`",
    ),
    "both sources": (
        "  files:", "  delta: {path: x}\n  files:", "choose-one", 2, "exactly one of",
    ),
    "registry": (END, f"{END}registry: ./schemas\n", "unknown-key", 7, RECORDS),
    "silver": (END, f"{END}silver: 'x_{{route}}'\n", "unknown-key", 7, RECORDS),
    "size of records": (END, f"{END}max_record_bytes: 1 MB\n", "unknown-key", 7, RECORDS),
    # keys
    "mistyped source": ("files:", "file:", "unknown-key", 3, "did you mean `files`?"),
    "mistyped source and envelope": (
        f"{FILES}{ENVELOPE}", "fles:\n    path: x\nenvelope: datastream\n", "unknown-key", 3,
        "`files`?",
    ),
    "mistyped envelope": (ENVELOPE, "envelope: datastrem\n", "bad-choice", 5, "`datastream`?"),
    "no envelope": (ENVELOPE, "", "missing-key", 1, "`envelope: datastream`"),
    "no lake": (END, "", "missing-key", 1, "the pipeline needs `lake`"),
    "no path": (PATH, "    settle: 1m\n", "missing-key", 3, "`path: ./landing`"),
    "mistyped key": (END, f"{END}chnge_log: 'l_{{table}}'\n", "unknown-key", 7, "`change_log`?"),
    "mistyped key of files": (PATH, f"{PATH}    includes: []\n", "unknown-key", 5, "`include`?"),
    "mistyped key of merge": (END, f"{END}merge: {{evry: 1m}}\n", "unknown-key", 7, "`every`?"),
    "key at the wrong level": (END, f"{END}settle: 1m\n", "unknown-key", 7, "`source.files`"),
    # files
    "include as text": (PATH, f"{PATH}    include: shop.*\n", "wrong-type", 5, "`include: [shop"),
    "include of a table without its database": (
        PATH, f"{PATH}    include: [shop.*, orders]\n", "bad-value", 5, "`database.table`",
    ),
    "exclude of nothing": (PATH, f"{PATH}    exclude: ['']\n", "bad-value", 5, "item 1 of"),
    "exclude of a number": (PATH, f"{PATH}    exclude: [7]\n", "wrong-type", 5, "item 1 of"),
    "start that is no time": (PATH, f"{PATH}    start: earliest\n", "bad-value", 5, "a date"),
    "start as a number": (PATH, f"{PATH}    start: 5\n", "wrong-type", 5, "a date"),
    "no files in a batch": (
        PATH, f"{PATH}    files_per_batch: 0\n", "bad-value", 5, "greater than 0",
    ),
    "bytes of a batch in words": (
        PATH, f"{PATH}    bytes_per_batch: many\n", "bad-value", 5, "not a size",
    ),
    "settle without a unit": (PATH, f"{PATH}    settle: 10\n", "wrong-type", 5, "`10s`"),
    "path with a password": (
        "path: ./landing", "path: s3://me:pw@host/x", "secret-in-file", 4, "in the URL",
    ),
    # the envelope
    "keys as a list": (
        ENVELOPE, "envelope:\n  datastream:\n    keys: [id]\n", "wrong-type", 7, "keys: {shop",
    ),
    "key as text": (
        ENVELOPE, "envelope:\n  datastream:\n    keys:\n      shop.a: id\n", "wrong-type", 8,
        "a list",
    ),
    "key without columns": (
        ENVELOPE, "envelope:\n  datastream:\n    keys:\n      shop.a: []\n", "bad-value", 8,
        "[order_id]",
    ),
    "key with a column twice": (
        ENVELOPE, "envelope:\n  datastream:\n    keys:\n      shop.a: [b, b]\n", "bad-value", 8,
        "duplicates: `b`",
    ),
    "key of a table without its database": (
        ENVELOPE, "envelope:\n  datastream:\n    keys:\n      orders: [id]\n", "bad-value", 8,
        "`database.table`",
    ),
    "lineage of no kind": (
        ENVELOPE, "envelope: {datastream: {lineages: [mysql-bin]}}\n", "bad-value", 5,
        "`log:mysql-bin`",
    ),
    "lineage of a file": (
        ENVELOPE, "envelope: {datastream: {lineages: ['log:mysql-bin.000014']}}\n", "bad-value", 5,
        "leave out the number",
    ),
    "lineage of no server": (
        ENVELOPE, "envelope: {datastream: {lineages: ['gtid:me']}}\n", "bad-value", 5, "UUID",
    ),
    "lineage twice": (
        ENVELOPE, "envelope: {datastream: {lineages: ['log:a', 'log:a']}}\n", "bad-value", 5,
        "duplicates: `log:a`",
    ),
    # tables
    "log without a table": (
        END, f"{END}change_log: 'log_{{database}}'\n", "bad-template", 7, "needs `{table}`",
    ),
    "log of routes": (
        END, f"{END}change_log: 'log_{{table}}_{{route}}'\n", "bad-template", 7, "`{schema}`",
    ),
    "log with a table twice": (
        END, f"{END}change_log: 'log_{{table}}_{{table}}'\n", "bad-template", 7, "duplicates",
    ),
    "log with nothing between": (
        END, f"{END}change_log: 'log_{{database}}{{table}}'\n", "bad-template", 7, "between",
    ),
    "log that is hidden": (
        END, f"{END}change_log: '_{{table}}'\n", "bad-template", 7, "do not start with `_`",
    ),
    "log in another folder": (
        END, f"{END}change_log: '../{{table}}'\n", "bad-template", 7, "lowercase letters",
    ),
    "log with three underscores": (
        END, f"{END}change_log: 'log___{{table}}'\n", "bad-template", 7, "three in a row",
    ),
    "log with a long name": (
        END, f"{END}change_log: '{'l' * 65}{{table}}'\n", "bad-template", 7, "up to 64",
    ),
    "merged named as the log": (
        END, f"{END}merged: 'log_{{database}}_{{table}}'\n", "bad-template", 7, "`change_log`",
    ),
    "merged beside the log": (
        END, f"{END}merged: 'log_{{table}}'\n", "bad-template", 7, "`now_{database}_{table}`",
    ),
    "log named as the merged are": (
        END, f"{END}change_log: '{{schema}}_{{table}}'\n", "bad-template", 7,
        "same names as `merged`",
    ),
    "history named as the merged": (
        END, f"{END}history: '{{database}}_{{table}}'\n", "bad-template", 7,
        "same names as `merged`",
    ),
    "quarantine named as the ledger": (
        END, f"{END}quarantine: ledger\n", "bad-value", 7, "name of `ledger`",
    ),
    "lake among the change files": (
        END, "lake: ./landing/lake\n", "bad-value", 6, "read as change files",
    ),
    # the merge and the rest
    "metadata as text": (END, f"{END}merge: {{metadata: 'no'}}\n", "wrong-type", 7, "`true` or"),
    "horizon beyond all time": (
        END, f"{END}merge: {{horizon: 99999d}}\n", "bad-value", 7, "a century",
    ),
    "merge into nothing": (
        END, f"{END}merged:\nmerge: {{every: 1m}}\n", "bad-value", 8, "without `merged`",
    ),
    "largest file in words": (END, f"{END}max_file_bytes: big\n", "bad-value", 7, "not a size"),
    # the contract in the words of others
    "contract merge": (END, f"{END}contract: merge\n", "bad-choice", 7, "called `evolve` here"),
    "contract none": (END, f"{END}contract: none\n", "bad-choice", 7, "called `freeze` here"),
    "contract overwrite": (END, f"{END}contract: overwrite\n", "bad-choice", 7, "null in new rows"),
    "contract of columns": (
        END, f"{END}contract: {{columns: overwrite}}\n", "bad-choice", 7, "null in new rows",
    ),
    "contract of a table": (
        END, f"{END}contract:\n  per_table:\n    log_*: none\n", "bad-choice", 9, "`freeze`",
    ),
    "contract of a table's types": (
        END, f"{END}contract:\n  per_table:\n    log_*: {{types: merge}}\n", "bad-choice", 9,
        "`evolve`",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BROKEN.values(), ids=BROKEN.keys())
def test_broken_file_has_one_finding_per_cause(
    case: tuple[str, str, str, int, str], write: Write
) -> None:
    old, new, code, line, word = case
    assert old in GOOD
    [finding] = check_pipeline(write(GOOD.replace(old, new)))
    assert (finding.code, finding.line) == (code, line)
    assert word in f"{finding.message} {finding.hint}"


def test_good_file_has_no_finding(write: Write) -> None:
    assert check_pipeline(write(GOOD)) == []
    assert isinstance(load_pipeline(write(GOOD)), PipelineConfig)


@pytest.mark.parametrize("key", ["change_log", "merge", "history"])
def test_keys_for_change_files_are_findings_in_a_stream_of_records(key: str, write: Write) -> None:
    text = f"""\
name: games
source: {{delta: {{path: ./inbox}}}}
registry: ./schemas
envelope: confluent
lake: ./lake
{key}: 1
"""
    [finding] = check_pipeline(write(text))
    assert (finding.code, finding.line) == ("unknown-key", 6)
    assert finding.hint == "it is for change files, `source: {files: …}`"


MODELS = (PipelineConfig, Files, Datastream, Merge)
KEYS = sorted(
    {*re.findall(r"\w+(?=:)", GOOD), *(key for one in MODELS for key in one.model_fields)}
)
TEXTS = st.text("ab1:/@{}._~é \n", max_size=8)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | TEXTS | st.dates()
WORDS = ["10s", "1 MB", "{table}", "a_{database}_{table}", "shop.*", "log:a", "merge", "datastream"]
VALUES = st.recursive(
    SCALARS | st.sampled_from(WORDS),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(KEYS) | TEXTS | st.integers(), inner, max_size=4)
    ),
    max_leaves=8,
)
CHANGES = st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=4)


@settings(deadline=None)
@given(CHANGES, st.sampled_from(["top", "files", "datastream"]))
def test_any_value_anywhere_is_a_finding_and_never_a_crash(
    changes: dict[str, object], place: str
) -> None:
    data = yaml.safe_load(GOOD)
    data["envelope"] = {"datastream": {}}
    places = {"top": data, "files": data["source"]["files"]}
    places.get(place, data["envelope"]["datastream"]).update(changes)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "shop.yaml"
        path.write_text(yaml.safe_dump(data), encoding="utf-8")
        for finding in check_pipeline(path):
            assert finding.code in CODES
            assert finding.line
            assert "Input should" not in f"{finding.message} {finding.hint}"
