"""The records of one table in a portion: decoded, checked, admitted by the contract, written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from headgate.envelope.opened import Group, Rejected
from headgate.land.admit import admit
from headgate.land.checked import Checked
from headgate.land.decode_ahead import DecodedAhead
from headgate.land.expectations import Expectations, without
from headgate.land.origins import Origins, Part, joined
from headgate.land.staged_file import StagedFile, written
from headgate.land.staging_plan import StagingPlan
from headgate.land.withheld import Withheld
from headgate.land.write_parquet import write_parquet
from headgate.quarantine.reason import Reason
from headgate.schema.change import CreateTable, SchemaChange
from headgate.schema.decoder import Decoder, Refusal
from headgate.schema.decoders import Decoders
from headgate.schema.fit import decided, fit
from headgate.schema.registry import SchemaKey

GroupOf = tuple[Group, Origins]
"""Records of one schema, and where they came from."""


def stage_table(
    plan: StagingPlan,
    table: str,
    groups: Sequence[GroupOf],
    decoders: Decoders,
    ahead: DecodedAhead,
    rejected: list[Rejected],
    withheld: list[Withheld],
    checked: list[Checked],
) -> Iterator[StagedFile]:
    """One file for all schemas of a table, as long as they agree about types."""
    rules = plan.contract.for_table(table)
    shape = plan.shape(table)
    expected = Expectations.of(plan.expect, table)
    parts: list[Part] = []
    new_schemas: dict[str, str] = {}
    stayed_out: list[Withheld] = []
    unknown = 0
    for group, origin in sorted(groups, key=_age):
        decoder, key = _decoder(decoders, group), group.message[0]
        decoded = ahead.get(group) or decoder.decode(group.payloads)
        for position, detail in decoded.bad.items():
            row = int(origin.rows[position])
            rejected.append(Rejected(row, Reason.PAYLOAD_UNDECODABLE, detail, group.route, key))
        landing, columns = origin.without(decoded.bad), decoded.columns
        unknown += len(decoded.unknown)
        if expected is not None and len(columns):
            failing = expected.check(landing.place, columns, landing.columns)
            for position, detail in failing.items():
                row = int(landing.rows[position])
                rejected.append(Rejected(row, Reason.EXPECTATION, detail, group.route, key))
            landing, columns = landing.without(failing), without(columns, failing)
        if shape is None and rules.strict:
            shape = decoder.schema
        if shape is not None:
            admitted = admit(columns, fit(decoder.schema, shape, rules))
            for position, change in admitted.kept_out.items():
                reason, row = reason_of(change), int(landing.rows[position])
                rejected.append(Rejected(row, reason, str(change), group.route, key))
            stayed_out += [
                _withheld(table, key, change, rows) for change, rows in admitted.withheld
            ]
            landing, columns = landing.without(admitted.kept_out), admitted.columns
        if len(landing.rows):
            parts.append(Part(columns, landing, key))
            if isinstance(key, int) and key not in plan.met.get(table, ()):
                new_schemas[str(key)] = written(decoder.schema)
    counts: tuple[Checked, ...] = ()
    if expected is not None:
        expected.stop_if_broken()
        counts = expected.counts
    route, files = groups[0][0].route, joined(parts)
    for number, (rows, ids) in enumerate(files):
        new = {key: schema for key, schema in new_schemas.items() if int(key) in ids}
        file = write_parquet(plan.lake, table, plan.new_file(), rows, route=route, schema_ids=ids)
        yield replace(
            file,
            new_schemas=new or None,
            unknown_fields=0 if number else unknown,
            withheld=() if number else tuple(stayed_out),
            expectations=() if number else counts,
        )
    if not files:
        withheld += stayed_out
        checked += counts


def without_table(
    plan: StagingPlan,
    table: str,
    groups: Sequence[GroupOf],
    decoders: Decoders,
    withheld: list[Withheld],
) -> list[Rejected]:
    """All records of a route that may not have a table."""
    rules = plan.contract.for_table(table)
    rejected: list[Rejected] = []
    for group, origin in groups:
        columns = len(_decoder(decoders, group).schema)
        change = decided(CreateTable(table, columns), rules)
        withheld.append(_withheld(table, group.message[0], change, len(origin.rows)))
        rejected += reject(group, origin, Reason.CONTRACT_TABLES, f"for table {table}")
    return rejected


def reject(group: Group, origin: Origins, reason: Reason, detail: str) -> list[Rejected]:
    key = group.message[0]
    return [Rejected(int(row), reason, detail, group.route, key) for row in origin.rows]


def _decoder(decoders: Decoders, group: Group) -> Decoder:
    decoder = decoders.decoder(*group.message)
    assert not isinstance(decoder, Refusal)
    return decoder


def _age(one: GroupOf) -> tuple[bool, int, str]:
    """Registries count their ids up."""
    key = one[0].message[0]
    return (False, key, "") if isinstance(key, int) else (True, 0, key)


def reason_of(change: SchemaChange) -> Reason:
    return Reason.CONTRACT_TYPES if change.decided_by == "types" else Reason.CONTRACT_COLUMNS


def _withheld(table: str, key: SchemaKey, change: SchemaChange, rows: int) -> Withheld:
    return Withheld(table, (key,) if isinstance(key, int) else (), change.as_record(), rows)
