"""What a run did, when it is over."""

from __future__ import annotations

from headgate.cli.amounts import counted, lasted, number, rate
from headgate.cli.progress.tally import Tally
from headgate.cli.styled import printable, styled
from headgate.cli.text_columns import print_facts


def print_summary(headline: str, tally: Tally) -> None:
    """Records, tables, schema changes, quarantine and rate, and where the tables are."""
    print(styled(headline, "bold"))
    new = f" ({number(tally.new_tables)} new)" if tally.new_tables else ""
    print_facts(
        [
            ("records", f"{number(tally.rows)} landed"),
            ("quarantined", number(tally.quarantined.total())),
            *_broken(tally),
            ("tables", f"{number(len(tally.tables))}{new}"),
            *_derived(tally),
            ("schema changes", _changes(tally)),
            *(("", printable(f"{each.what}  {each.detail}")) for each in tally.schema_changes),
            ("rate", _rate(tally)),
            ("took", f"{lasted(tally.seconds)}, {counted(tally.batches, 'batch', 'batches')}"),
            ("lake", tally.lake),
        ]
    )


def _derived(tally: Tally) -> list[tuple[str, str]]:
    if tally.last_gold is None:
        return []
    tables, took = counted(tally.last_gold.tables, "table"), lasted(tally.last_gold.seconds)
    return [("derived", f"{tables} followed the last batch in {took}")]


def _broken(tally: Tally) -> list[tuple[str, str]]:
    """The rules that rows broke, one a line."""
    rules = [
        f"{rule}, {counted(count, 'row')} ({what})"
        for (rule, what), count in tally.broken.most_common()
    ]
    return [("" if number else "rules broken", rule) for number, rule in enumerate(rules)]


def _changes(tally: Tally) -> str:
    withheld = f", {number(tally.withheld)} withheld by the contract" if tally.withheld else ""
    more = tally.changes + tally.withheld > len(tally.schema_changes)
    return f"{number(tally.changes)}{withheld}{', the last ones:' if more else ''}"


def _rate(tally: Tally) -> str:
    overall = rate(tally.records, tally.busy_seconds)
    if tally.batches < 2:
        return f"{overall} while landing"
    return f"{overall} while landing, {number(tally.fastest)} in the fastest batch"
