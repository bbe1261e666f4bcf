from __future__ import annotations

import re
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.config import InvalidPipeline, Kafka, PipelineConfig, check_pipeline, load_pipeline
from headgate.errors import CODES, PipelineFileError

Write = Callable[[str], Path]

GOOD = """\
name: games
source:
  kafka:
    servers: "localhost:9092"
    topics: [games]
registry: ./schemas
envelope:
  wrapper: {message: wrapper, route: game_name, schema_id: schema_id, payload: payload}
lake: ./lake
"""
KAFKA = 'kafka:\n    servers: "localhost:9092"\n    topics: [games]\n'
WRAPPER = GOOD.splitlines()[7].strip()
TOPICS = "    topics: [games]\n"
END = "lake: ./lake\n"
HIVE = "catalog: {name: games, in: 'thrift://host:9083'}\n"
UNITY = "catalog: {name: games, in: main}\n"

# Old text, new text, expected code, line, and a part of the message or hint.
BROKEN = {
    # the YAML itself
    "unclosed list": ("topics: [games]", "topics: [games", "not-yaml", 6, "flow sequence"),
    "two documents": (END, f"{END}---\n", "not-yaml", 10, "single document"),
    "control character": (END, f"{END}bronze: \x07\n", "not-yaml", 10, "character"),
    "unknown tag": ("name: games", "name: !!python/name:os.system x", "not-yaml", 1, "tag"),
    "set": (END, f"{END}spark: !!set {{a, b}}\n", "not-yaml", 10, "tags"),
    "undefined alias": ("name: games", "name: *games", "not-yaml", 1, "undefined alias"),
    "merge key": (END, f"{END}spark: {{<<: {{a: b}}}}\n", "not-yaml", 10, "plain text"),
    "list as key": (END, f"{END}? [a]\n: b\n", "not-yaml", 10, "plain text"),
    "impossible date": ("name: games", "name: 2026-99-99", "not-yaml", 1, "quotes"),
    "endless number": ("name: games", f"name: 0x{'f' * 9999}", "not-yaml", 1, "quotes"),
    "alias of itself": (END, f"{END}spark: &a [*a]\n", "not-yaml", 1, "too deep"),
    "deep nesting": (END, f"{END}spark: {'[' * 5000}\n", "not-yaml", 1, "too deep"),
    "key twice": (END, f"{END}name: other\n", "duplicate-key", 10, "on line 1"),
    "key twice inside": (TOPICS, TOPICS * 2, "duplicate-key", 6, "on line 5"),
    # keys
    "not a mapping": (GOOD, "- games\n", "wrong-type", 1, "not a list"),
    "only text": (GOOD, "games\n", "wrong-type", 1, "not text"),
    "mistyped key": ("topics:", "topicz:", "unknown-key", 5, "did you mean `topics`?"),
    "mistyped key that is needed": ("servers:", "server:", "unknown-key", 4, "`servers`?"),
    "unknown key": (END, f"{END}zebra: 1\n", "unknown-key", 10, "known keys: `name`"),
    "key at the wrong level": (END, f"{END}topics: [a]\n", "unknown-key", 10, "`source.kafka`"),
    "number as key": (END, f"{END}1: one\n", "unknown-key", 10, "no key `1`"),
    "file is not a key": (END, f"{END}file: x\n", "unknown-key", 10, "no key `file`"),
    "missing key": (END, "", "missing-key", 1, "the pipeline needs `lake`"),
    "missing key inside": ('    servers: "localhost:9092"\n', "", "missing-key", 3, "`servers`"),
    # the name
    "name with capitals": ("name: games", "name: Games", "bad-value", 1, "lowercase letter"),
    "name read as false": ("name: games", "name: no", "wrong-type", 1, "put it in quotes"),
    "name read as a number": ("name: games", "name: 2024", "wrong-type", 1, "put it in quotes"),
    # the source
    "no source": (KAFKA, "{}\n", "choose-one", 2, "exactly one of `kafka`, `delta`"),
    "two sources": ("  kafka:", "  delta: {path: x}\n  kafka:", "choose-one", 2, "exactly one"),
    "mistyped source": ("kafka:", "kafak:", "unknown-key", 3, "did you mean `kafka`?"),
    "source as a list": (KAFKA, "- kafka\n", "wrong-type", 2, "keys and values"),
    "neither topics nor pattern": (TOPICS, "", "choose-one", 3, "`topics`, `pattern`"),
    "topics and pattern": (TOPICS, f"{TOPICS}    pattern: a.*\n", "choose-one", 6, "`pattern`"),
    "topics as text": ("[games]", "games", "wrong-type", 5, "`topics: [games]`"),
    "topics as a mapping": ("[games]", "{games: 1}", "wrong-type", 5, "a list"),
    "topic as a number": ("[games]", "[games, 7]", "wrong-type", 5, "item 2 of"),
    "topic with a space": ("[games]", "[a b]", "bad-value", 5, "pattern"),
    "topic twice": ("[games]", "[a, b, a]", "bad-value", 5, "duplicates: `a`"),
    "server without a port": ('"localhost:9092"', "localhost", "bad-value", 4, "host:port"),
    "batch as text": (TOPICS, f"{TOPICS}    batch: '5'\n", "wrong-type", 6, "whole number"),
    "batch as yes": (TOPICS, f"{TOPICS}    batch: yes\n", "wrong-type", 6, "not `true`"),
    "batch of none": (TOPICS, f"{TOPICS}    batch: 0\n", "bad-value", 6, "greater than 0"),
    "mistyped start": (TOPICS, f"{TOPICS}    start: latst\n", "bad-value", 6, "`latest`?"),
    "start as a number": (TOPICS, f"{TOPICS}    start: 12\n", "wrong-type", 6, "offsets"),
    "start of another topic": (
        TOPICS, f"{TOPICS}    start: {{gamez: {{0: 1}}}}\n", "bad-value", 6, "`gamez`",
    ),
    "start that leaves out a topic": (
        TOPICS, "    topics: [a, b]\n    start: {a: {0: 1}}\n", "bad-value", 6, "leaves out `b`",
    ),
    "start before the beginning": (
        TOPICS, f"{TOPICS}    start: {{games: {{0: -3}}}}\n", "bad-value", 6, "-2 means",
    ),
    "start without partitions": (
        TOPICS, f"{TOPICS}    start: {{games: 5}}\n", "wrong-type", 6, "partitions",
    ),
    "delta without a path": (KAFKA, "delta: {start: 0}\n", "missing-key", 3, "./inbox"),
    "delta before its first version": (
        KAFKA, "delta: {path: x, start: -1}\n", "bad-value", 3, "version of the table",
    ),
    "delta with a batch of rows": (
        KAFKA, "delta: {path: x, batch: many}\n", "bad-value", 3, "not a size",
    ),
    # security and options
    "security without a password": (
        TOPICS, f"{TOPICS}    security: {{protocol: SASL_SSL, mechanism: PLAIN, username: a}}\n",
        "missing-key", 6, "`SASL_SSL` needs it",
    ),
    "login that is not used": (
        TOPICS, f"{TOPICS}    security: {{protocol: SSL, username: a}}\n", "bad-value", 6,
        "`protocol: SASL_SSL`",
    ),
    "certificates without encryption": (
        TOPICS, f"{TOPICS}    security: {{protocol: PLAINTEXT, ca: a.pem}}\n", "bad-value", 6,
        "`SSL` or `SASL_SSL`",
    ),
    "key without a certificate": (
        TOPICS, f"{TOPICS}    security: {{protocol: SSL, key: a}}\n", "missing-key", 6, "together",
    ),
    "unknown protocol": (
        TOPICS, f"{TOPICS}    security: {{protocol: TLS}}\n", "bad-choice", 6, "`PLAINTEXT`",
    ),
    "option that Headgate sets": (
        TOPICS, f"{TOPICS}    options: {{startingOffsets: x}}\n", "bad-value", 6, "`start`",
    ),
    "option that loads code": (
        TOPICS, f"{TOPICS}    options: {{kafka.interceptor.classes: x}}\n", "insecure-option", 6,
        "run code",
    ),
    "option without its prefix": (
        TOPICS, f"{TOPICS}    options: {{session.timeout.ms: 1}}\n", "unknown-key", 6,
        "`kafka.session.timeout.ms`",
    ),
    "mistyped option": (
        TOPICS, f"{TOPICS}    options: {{minPartition: 1}}\n", "unknown-key", 6, "`minPartitions`?",
    ),
    "option as a list": (
        TOPICS, f"{TOPICS}    options: {{kafka.a: [1]}}\n", "wrong-type", 6, "text or a number",
    ),
    "secret in an option": (
        TOPICS, f"{TOPICS}    options: {{kafka.ssl.truststore.password: a}}\n", "secret-in-file", 6,
        "`env:NAME`",
    ),
    # the registry
    "registry of another kind": ("./schemas", "ftp://host", "bad-value", 6, "http://"),
    "registry as a number": ("./schemas", "8081", "wrong-type", 6, "keys and values"),
    "registry without an address": ("./schemas", "{timeout: 5s}", "choose-one", 6, "`folder`"),
    "registry with a password inside": (
        "./schemas", "http://me:pw@host", "secret-in-file", 6, "in the URL",
    ),
    "registry with a token inside": (
        "./schemas", "https://tk@host", "secret-in-file", 6, "in the URL",
    ),
    "registry with half a login": (
        "./schemas", "{url: 'http://h', username: me}", "missing-key", 6, "together with",
    ),
    "registry with two logins": (
        "./schemas", "{url: 'http://h', username: a, password: 'env:B', token: 'env:C'}",
        "choose-one", 6, "`token`",
    ),
    "registry folder with a login": (
        "./schemas", "{folder: a, token: 'env:C'}", "bad-value", 6, "no effect with a `folder`",
    ),
    "registry with an endless timeout": (
        "./schemas", "{url: 'http://h', timeout: 60}", "wrong-type", 6, "`10s`",
    ),
    # the envelope
    "mistyped envelope": (f"\n  {WRAPPER}", " conflunt", "bad-choice", 7, "`confluent`?"),
    "two envelopes": ("  wrapper:", "  confluent:\n  wrapper:", "choose-one", 7, "exactly one"),
    "mistyped route": (WRAPPER, "confluent: {route: topics}", "bad-choice", 8, "`topic`?"),
    "wrapper field twice": ("payload: payload", "payload: game_name", "bad-value", 8, "`route`"),
    "wrapper field with a dot": ("payload: payload", "payload: a.b", "bad-value", 8, "field"),
    "wrapper message with a space": ("message: wrapper", "message: a b", "bad-value", 8, "package"),
    "missing proto": (
        "payload: payload", "payload: payload, proto: no.proto", "bad-proto", 8, "no.proto",
    ),
    # tables and the rest
    "lake in an unknown storage": ("./lake", "ftp://host/lake", "bad-value", 9, "`s3://`"),
    "maintenance by a word": (
        END, f"{END}maintain: often\n", "wrong-type", 10, "`maintain: true`",
    ),
    "files that are too small": (
        END, f"{END}maintain: {{file_size: 1 kB}}\n", "bad-value", 10, "1 MB and 1 GB",
    ),
    "versions that are kept for too long": (
        END, f"{END}maintain: {{keep: 90 days}}\n", "bad-value", 10, "30 days",
    ),
    "too few versions": (
        END, f"{END}maintain: {{max_versions: 3}}\n", "bad-value", 10, "20",
    ),
    "storage without a URL": (
        END, f"{END}storage: {{region: eu-central-1}}\n", "bad-value", 10, "no effect",
    ),
    "storage with a key in the file": (
        END, f"{END}storage: {{secret_key: hunter2}}\n", "secret-in-file", 10, "reference",
    ),
    "catalog without a place": (
        END, f"{END}catalog: {{name: games}}\n", "missing-key", 10, "`in: main`",
    ),
    "catalog with the name of the field": (
        END, f"{END}catalog: {{name: games, in_: main}}\n", "unknown-key", 10, "`in`?",
    ),
    "catalog with a dash in Hive": (
        END, f"{END}catalog: {{name: my-games, in: 'thrift://h:9083'}}\n",
        "bad-value", 10, "lowercase letters",
    ),
    "catalog with SQL in its name": (
        END, f"{END}catalog: {{name: 'a`; DROP TABLE b', in: main}}\n", "bad-value", 10, "letters",
    ),
    "catalog of the session with a dot": (
        END, f"{END}catalog: {{name: a.b, in: spark_catalog}}\n", "bad-value", 10, "databases",
    ),
    "catalog twice": (
        END, f"{END}catalog: {{name: main.games, in: main}}\n",
        "bad-value", 10, "{name: games, in: main}",
    ),
    "metastore without a port": (
        END, f"{END}catalog: {{name: games, in: 'thrift://host'}}\n",
        "bad-value", 10, "host and port",
    ),
    "metastore with another port": (
        END, f"{END}catalog: {{name: games, in: 'thrift://host:99999'}}\n",
        "bad-value", 10, "host and port",
    ),
    "one of two metastores is none": (
        END, f"{END}catalog: {{name: games, in: 'thrift://a:1,http://b:2'}}\n",
        "bad-value", 10, "`http://b:2`",
    ),
    "metastore with a password": (
        END, f"{END}catalog: {{name: games, in: 'thrift://me:pw@host:9083'}}\n",
        "secret-in-file", 10, "in the URL",
    ),
    "grants without a catalog": (
        END, f"{END}grants: [{{to: a}}]\n", "bad-value", 10, "`catalog: {name: games, in: main}`",
    ),
    "grants as a mapping": (
        END, f"{END}{UNITY}grants: {{to: a}}\n", "wrong-type", 11, "`grants: [{",
    ),
    "grant to no one": (
        END, f"{END}{UNITY}grants: [{{tables: gold_*}}]\n", "missing-key", 11, "`to: analysts`",
    ),
    "grant to an unknown kind": (
        END, f"{END}{HIVE}grants: [{{to: {{grop: a}}}}]\n", "unknown-key", 11, "`group`?",
    ),
    "grant to two principals at once": (
        END, f"{END}{HIVE}grants: [{{to: {{user: a, role: b}}}}]\n",
        "choose-one", 11, "`to` in item 1",
    ),
    "grant without a kind in Hive": (
        END, f"{END}{HIVE}grants: [{{to: a}}]\n", "bad-value", 11, "`to: {group: a}`",
    ),
    "grant with a kind elsewhere": (
        END, f"{END}{UNITY}grants: [{{to: {{group: a}}}}]\n", "bad-value", 11, "`to: a`",
    ),
    "grant with the kind in the text": (
        END, f"{END}{HIVE}grants: [{{to: 'group:a'}}]\n", "bad-value", 11, "`to: {group: a}`",
    ),
    "grant to a name with a newline": (
        END, f'{END}{UNITY}grants: [{{to: "a\\nb"}}]\n', "bad-value", 11, "printable",
    ),
    "grant to a name that Hive cannot store": (
        END, f"{END}{HIVE}grants: [{{to: {{user: {'a' * 129}}}}}]\n", "bad-value", 11, "128",
    ),
    "grant on tables that do not exist": (
        END, f"{END}{UNITY}grants: [{{to: a, tables: slver_*}}]\n", "bad-value", 11, "`silver_*`?",
    ),
    "grant with SQL in the pattern": (
        END, f"{END}{UNITY}grants: [{{to: a, tables: 'x`; DROP'}}]\n", "bad-value", 11, "lowercase",
    ),
    "privilege that Hive does not have": (
        END, f"{END}{HIVE}grants: [{{to: {{user: a}}, privileges: MODIFY}}]\n",
        "bad-choice", 11, "`INSERT`",
    ),
    "mistyped privilege": (
        END, f"{END}{UNITY}grants: [{{to: a, privileges: [SELEKT]}}]\n",
        "bad-choice", 11, "`SELECT`?",
    ),
    "privilege as a number": (
        END, f"{END}{UNITY}grants: [{{to: a, privileges: [1]}}]\n", "wrong-type", 11, "in quotes",
    ),
    "lake without a path": ("./lake", "''", "bad-value", 9, "path"),
    "silver without a route": (END, f"{END}silver: silver\n", "bad-template", 10, "`{route}`"),
    "silver with two routes": (
        END, f"{END}silver: '{{route}}_{{route}}'\n", "bad-template", 10, "exactly once",
    ),
    "silver with another placeholder": (
        END, f"{END}silver: 's_{{route}}_{{day}}'\n", "bad-template", 10, "`{day}`",
    ),
    "silver that is hidden": (
        END, f"{END}silver: '_{{route}}'\n", "bad-template", 10, "do not start with `_`",
    ),
    "silver in another folder": (
        END, f"{END}silver: '../{{route}}'\n", "bad-template", 10, "lowercase letters",
    ),
    "bronze that is hidden": (END, f"{END}bronze: _bronze\n", "bad-value", 10, "letter"),
    "bronze named as the ledger": (END, f"{END}bronze: ledger\n", "bad-value", 10, "`ledger`"),
    "quarantine named as the ledger": (
        END, f"{END}quarantine: ledger\n", "bad-value", 10, "name of `ledger`",
    ),
    "payload message with a space": (
        "payload: payload", "payload: payload, payload_message: a b", "bad-value", 8, "package",
    ),
    "payload message of a route with a space": (
        "payload: payload", "payload: payload, payload_message: {go: a b}", "bad-value", 8,
        "package",
    ),
    "payload message that is a number": (
        "payload: payload", "payload: payload, payload_message: 7", "wrong-type", 8,
        "payload_message: Event",
    ),
    "payload message of a route that is a number": (
        "payload: payload", "payload: payload, payload_message: {go: 7}", "wrong-type", 8,
        "put it in quotes",
    ),
    "unknown choice about unknown fields": (
        END, f"{END}contract: {{unknown_fields: drop}}\n", "bad-choice", 10, "`ignore`",
    ),
    "unknown contract": (END, f"{END}contract: frozen\n", "bad-choice", 10, "`freeze`"),
    "unknown rule": (
        END,
        f"{END}contract: {{columns: evlove}}\n",
        "bad-choice",
        10,
        "`evolve`",
    ),
    "unknown rule for a table": (
        END,
        f"{END}contract:\n  per_table:\n    silver_a*: {{colums: freeze}}\n",
        "unknown-key",
        12,
        "`columns`",
    ),
    "mistyped commit": (END, f"{END}commit: deltars\n", "bad-choice", 10, "`delta-rs`?"),
    "trigger without a unit": (END, f"{END}trigger: 10\n", "wrong-type", 10, "`10s`"),
    "trigger with an unknown unit": (END, f"{END}trigger: 3 moons\n", "bad-value", 10, "duration"),
    "trigger of no time": (END, f"{END}trigger: 0s\n", "bad-value", 10, "millisecond"),
    "size with an unknown unit": (
        END, f"{END}max_record_bytes: 1 acre\n", "bad-value", 10, "not a size",
    ),
    "no tables at all": (END, f"{END}max_tables: 0\n", "bad-value", 10, "greater than 0"),
    "spark setting without its prefix": (
        END, f"{END}spark: {{driver.memory: 2g}}\n", "unknown-key", 10, "`spark.driver.memory`?",
    ),
    "spark as text": (END, f"{END}spark: fast\n", "wrong-type", 10, "keys and values"),
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


def test_findings_come_all_at_once_and_in_order(write: Write) -> None:
    text = """\
source:
  kafka:
    topicz: [games]
    batch: many
    options: {kafka.group.id: ok, assign: x, groupId: y}
name: Games
name: games
registry: {url: "http://host", password: x}
lake: ftp://lake
trigger: 1 moon
"""
    findings = check_pipeline(write(text))
    assert [(each.line, each.column, each.code) for each in findings] == [
        (1, 1, "missing-key"),
        (2, 3, "missing-key"),
        (3, 5, "unknown-key"),
        (4, 12, "wrong-type"),
        (5, 43, "bad-value"),
        (5, 46, "unknown-key"),
        (6, 7, "bad-value"),
        (7, 1, "duplicate-key"),
        (8, 42, "secret-in-file"),
        (9, 7, "bad-value"),
        (10, 10, "bad-value"),
    ]


def test_error_has_the_message_of_the_first_finding_and_keeps_all(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(GOOD.replace("topics", "topicz").replace("./lake", "ftp://lake"))
    monkeypatch.chdir(path.parent)
    with pytest.raises(PipelineFileError) as raised:
        load_pipeline("games.yaml")
    assert str(raised.value) == (
        "games.yaml:5:5: `source.kafka` has no key `topicz` [unknown-key]\n"
        "hint: did you mean `topics`?"
    )
    assert isinstance(raised.value, InvalidPipeline)
    assert [each.where for each in raised.value.findings] == ["games.yaml:5:5", "games.yaml:9:7"]


KEYS = sorted({*re.findall(r"\w+(?=:)", GOOD), *PipelineConfig.model_fields, *Kafka.model_fields})
TEXTS = st.text("ab1:/@{}.~é \n", max_size=8)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | TEXTS | st.dates()
VALUES = st.recursive(
    SCALARS | st.sampled_from(["env:A", "10s", "1 MB", "http://a", "{route}"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(KEYS) | TEXTS | st.integers(), inner, max_size=4)
    ),
    max_leaves=8,
)


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=4), st.booleans())
def test_any_value_anywhere_is_a_finding_and_never_a_crash(
    changes: dict[str, object], in_kafka: bool
) -> None:
    data = yaml.safe_load(GOOD)
    (data["source"]["kafka"] if in_kafka else data).update(changes)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "games.yaml"
        path.write_text(yaml.safe_dump(data), encoding="utf-8")
        for finding in check_pipeline(path):
            assert finding.code in CODES
            assert finding.line
            assert "Input should" not in f"{finding.message} {finding.hint}"


def test_multiplying_aliases_are_rejected(write: Write) -> None:
    layers = "".join(f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]\n" for n in range(1, 9))
    [finding] = check_pipeline(write(f"l0: &l0 [x]\n{layers}"))
    assert (finding.code, finding.message) == ("not-yaml", "the file has too many values")


def test_missing_file_is_a_finding(tmp_path: Path) -> None:
    missing = tmp_path / "games.yaml"
    [finding] = check_pipeline(missing)
    assert (finding.code, finding.where) == ("file-not-found", str(missing))
    [finding] = check_pipeline(tmp_path)
    assert finding.code == "file-not-found"


def test_file_that_is_too_large_is_not_read(write: Write) -> None:
    [finding] = check_pipeline(write(f"{GOOD}#{' ' * 1_000_000}\n"))
    assert (finding.code, finding.line) == ("not-yaml", None)
    assert "1 MB" in finding.message


def test_file_that_is_not_text_names_the_line(tmp_path: Path) -> None:
    path = tmp_path / "games.yaml"
    path.write_bytes(b"name: games\nlake: \xff\n")
    [finding] = check_pipeline(path)
    assert (finding.code, finding.line) == ("not-yaml", 2)


def test_empty_file_lacks_every_required_key(write: Write) -> None:
    messages = [finding.message for finding in check_pipeline(write(""))]
    assert messages == [
        f"the pipeline needs `{key}`" for key in ("name", "source", "envelope", "lake", "registry")
    ]


def test_envelope_given_as_a_word_needs_its_required_keys(write: Write) -> None:
    findings = check_pipeline(write(GOOD.replace(f"\n  {WRAPPER}", " wrapper")))
    assert {(each.code, each.where) for each in findings} == {("missing-key", findings[0].where)}
    assert [each.message.split()[-1] for each in findings] == [
        "`message`",
        "`route`",
        "`schema_id`",
        "`payload`",
    ]
