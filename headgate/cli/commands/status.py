"""`headgate status`: the state of a pipeline."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

from headgate.amounts import counted, number
from headgate.cli.output import (
    JsonOption,
    ago,
    print_facts,
    print_json,
    print_next_steps,
    printable,
    styled,
)
from headgate.cli.pipeline_argument import (
    OnlineOption,
    PipelineArgument,
    find_pipeline,
    quiet_spark,
)

if TYPE_CHECKING:
    from headgate.inspect.status import GrantsStatus, PredictionStatus, ShardStatus, Status

_MAX_RULES = 10
_MAX_ERRORS = 5


def status(
    pipeline: PipelineArgument = None,
    online: OnlineOption = False,
    as_json: JsonOption = False,
) -> None:
    """Show what has landed, what is pending and what is running.

    \b
    Examples:
      headgate status games.yaml
      headgate status games.yaml --online

    Grants are those that the ledger has; with --online, they are compared with the catalog, which
    may start Spark.

    Next: headgate tables PIPELINE
    """
    from headgate.config import load_pipeline
    from headgate.inspect.status import read_status

    file = find_pipeline(pipeline)
    declared = load_pipeline(file)
    with quiet_spark() if online else nullcontext():
        found = read_status(declared, online)
    if as_json:
        print_json(found)
        return
    print(f"{styled(found.pipeline, 'bold')} {_state(found)}")
    if not found.batches and found.open_batch is None:
        print("Nothing has landed yet")
        if found.run is None:
            print_next_steps([(f"headgate run {file} --once", "land what the source has")])
        return
    print_facts(_facts(found))


def _state(found: Status) -> str:
    if found.run is not None:
        return styled(f"is running (process {found.run.pid} on {found.run.host})", "green")
    return "is not running"


def _facts(found: Status) -> list[tuple[str, str]]:
    facts = []
    # Only pipelines of change files count files.
    thing, table = ("record", "table") if found.files is None else ("change", "change log")
    if found.last_batch is not None:
        last = found.last_batch
        what = f"{counted(last.rows, thing)} into {counted(last.tables, table)}"
        facts.append(("last batch", f"{last.batch}, {ago(last.at)}: {what}"))
    facts.append(("batches", number(found.batches)))
    facts += [(f"shard {one.shard}", _shard(one)) for one in found.shards]
    if found.open_batch is not None:
        begun = "is being landed" if found.run else "is incomplete; the next run completes it"
        facts.append(("open batch", f"{found.open_batch} {begun}"))
    facts.append((f"{thing}s", number(found.rows)))
    facts.append((f"{table}s", number(found.tables)))
    if found.files is not None:
        facts.append(("files read", number(found.files)))
    facts.append(("schema changes", number(found.schema_changes)))
    facts.append(("quarantined", number(sum(found.quarantined.values()))))
    facts += [("", f"{number(count):>8}  {why}") for why, count in found.quarantined.items()]
    facts += _rules(found)
    for pending in found.pending:
        what = f"{counted(pending.rows, thing)}: {printable(pending.error)}"
        facts.append((styled("pending", "yellow"), f"{pending.table} with {what}"))
    if found.behind:
        tables = f"{counted(len(found.behind), 'table')} such as {found.behind[0]}"
        facts.append((styled("behind", "yellow"), f"{tables}; the next run merges them"))
    if found.follow_up_lag is not None:
        lag = found.follow_up_lag
        since = f"; the first landed {ago(lag.since)}" if lag.since else ""
        what = f"merged and derived tables lack {counted(lag.batches, 'batch', 'batches')}{since}"
        facts.append((styled("behind", "yellow"), what))
    facts += _not_merged(found)
    for lost in found.lost:
        what = f"{counted(lost.rows, thing)} in {counted(lost.files, 'staged file')}"
        facts.append((styled("lost", "red"), f"{lost.table}: {what}: {printable(lost.error)}"))
    facts += _derived(found)
    facts += _predicted(found)
    facts += _registered(found)
    facts += _granted(found)
    facts.append(("lake", found.lake))
    return facts


def _shard(shard: ShardStatus) -> str:
    state = f"runs as process {shard.run.pid} on {shard.run.host}" if shard.run else "does not run"
    last = f", the last {ago(shard.last_at)}" if shard.last_at else ""
    return f"{state}, {counted(shard.batches, 'batch', 'batches')}{last}"


def _not_merged(found: Status) -> list[tuple[str, str]]:
    """The tables whose last merge failed."""
    facts = []
    for table, error in list(found.merge_errors.items())[:_MAX_ERRORS]:
        what = f"{table}: {printable(error)}; the next batch retries it"
        facts.append((styled("not merged", "yellow"), what))
    if len(found.merge_errors) > _MAX_ERRORS:
        more = number(len(found.merge_errors) - _MAX_ERRORS)
        facts.append(("", f"and {more} more: --json lists all"))
    return facts


def _derived(found: Status) -> list[tuple[str, str]]:
    """The number of derived tables, and those that could not be updated."""
    made = [one.at for one in found.derived if one.at and one.table_version is not None]
    failed = [one for one in found.derived if one.error is not None]
    facts = []
    if made:
        facts.append(("derived", f"{counted(len(made), 'table')}, last updated {ago(max(made))}"))
    for one in failed[:_MAX_ERRORS]:
        what = f"{one.table}: {printable(str(one.error))}"
        facts.append((styled("not derived", "yellow"), what))
    if len(failed) > _MAX_ERRORS:
        facts.append(("", f"and {number(len(failed) - _MAX_ERRORS)} more: --json lists all"))
    return facts


def _predicted(found: Status) -> list[tuple[str, str]]:
    """What predicts, how far it is from the truth, and what keeps it from predicting."""
    facts = []
    for one in found.predictions:
        if one.at is None:
            facts.append(("predicted", f"{one.table}: nothing yet"))
        else:
            by = one.model or "the fallback"
            some = f", {number(one.fallback_last)} by the fallback" if one.fallback_last else ""
            rows = f"{counted(one.rows_last, 'row')} {ago(one.at)}{some if one.model else ''}"
            facts.append(("predicted", f"{one.table} by {by}: {rows}"))
        if one.mae is not None:
            facts.append(
                ("", f"error {one.mae:.2f} over {counted(one.truths, 'truth')}{_drift(one)}")
            )
        if one.trained_at is not None:
            facts.append(("", f"trained {ago(one.trained_at)}"))
        for error in (one.error, one.training_error):
            if error is not None:
                facts.append((styled("prediction", "yellow"), f"{one.table}: {printable(error)}"))
    return facts


def _registered(found: Status) -> list[tuple[str, str]]:
    """The number of tables in the catalog, and those that are missing there."""
    if found.catalog is None:
        return []
    one = found.catalog
    facts = [("registered", f"{counted(one.registered, 'table')} in {one.catalog}")]
    for table, error in list(one.errors.items())[:_MAX_ERRORS]:
        facts.append((styled("not registered", "yellow"), f"{table}: {printable(error)}"))
    if len(one.errors) > _MAX_ERRORS:
        facts.append(("", f"and {number(len(one.errors) - _MAX_ERRORS)} more: --json lists all"))
    others = [table for table in one.missing if table not in one.errors]
    if others:
        what = f"{counted(len(others), 'table')} such as {others[0]}; the next run registers them"
        facts.append((styled("not registered", "yellow"), what))
    return facts


def _granted(found: Status) -> list[tuple[str, str]]:
    """The number of grants, and the tables on which they are not as declared."""
    if found.grants is None:
        return []
    one, not_granted = found.grants, styled("not granted", "yellow")
    facts = [("granted", f"{counted(one.granted, 'privilege')}{_compared(one)}")]
    drift = one.drift or ()
    for differing in drift[:_MAX_ERRORS]:
        what = f"{differing.table}: {printable(differing.differences)}"
        facts.append((styled("differs", "yellow"), what))
    if len(drift) > _MAX_ERRORS:
        facts.append(("", f"and {number(len(drift) - _MAX_ERRORS)} more: headgate grants plan"))
    for table, error in list(one.errors.items())[:_MAX_ERRORS]:
        facts.append((not_granted, f"{table}: {printable(error)}"))
    if len(one.errors) > _MAX_ERRORS:
        facts.append(("", f"and {number(len(one.errors) - _MAX_ERRORS)} more: --json lists all"))
    lacking = [table for table in one.missing if table not in one.errors]
    if lacking:
        tables = f"{counted(len(lacking), 'table')} such as {lacking[0]}"
        what = f"{tables} lack declared grants; the next run grants them"
        facts.append((not_granted, what))
    if one.obsolete:
        tables = f"{counted(len(one.obsolete), 'table')} such as {one.obsolete[0]}"
        what = f"{tables} have grants that are not declared; headgate grants apply revokes them"
        facts.append((styled("not revoked", "yellow"), what))
    return facts


def _compared(one: GrantsStatus) -> str:
    if one.not_compared is not None:
        return f", {styled('not compared', 'yellow')}: {printable(one.not_compared)}"
    if one.drift is None:
        return ", as recorded; --online compares with the catalog"
    return ", as in the catalog" if not one.drift else ""


def _drift(one: PredictionStatus) -> str:
    if one.drift is None or one.trained_mae is None:
        return ""
    return f", {one.drift:.1f} times that of the training ({one.trained_mae:.2f})"


def _rules(found: Status) -> list[tuple[str, str]]:
    """The number of rules that all rows pass, and the others, most broken first."""
    if not found.expectations:
        return []
    broken = [one for one in found.expectations if one.failed]
    kept = len(found.expectations) - len(broken)
    facts = [("rules", f"{number(kept)} passed by all rows, {number(len(broken))} broken")]
    for one in broken[:_MAX_RULES]:
        rows = f"{number(one.failed)} of {counted(one.checked, 'row')}"
        facts.append(("", f"{one.table} {one.rule}: {rows} ({one.on_fail})"))
    if len(broken) > _MAX_RULES:
        facts.append(("", f"and {len(broken) - _MAX_RULES} more: --json lists all"))
    return facts
