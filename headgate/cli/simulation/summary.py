"""What a simulation sent, when it is over."""

from __future__ import annotations

from pathlib import Path

from headgate.cli.amounts import counted, lasted, number, rate
from headgate.cli.next_steps import print_next_steps
from headgate.cli.simulation.target import Target
from headgate.simulate.simulate_games import Simulated


def summary(sent: Simulated, target: Target, removed: list[str]) -> dict[str, object]:
    return {
        "records": sent.records,
        "seconds": round(sent.seconds, 3),
        "rate": round(sent.rate),
        "bad": {reason.value: count for reason, count in sent.bad.most_common()},
        "to": str(target),
        "registry": target.registry,
        "removed": removed,
    }


def print_summary(sent: Simulated, target: Target) -> None:
    print(
        f"Sent {counted(sent.records, 'record')} to {target} in {lasted(sent.seconds)} "
        f"({rate(sent.records, sent.seconds)})"
    )
    if sent.bad:
        print(f"{number(sent.bad.total())} of them cannot land:")
        for reason, count in sent.bad.most_common():
            print(f"  {number(count):>8}  {reason.value}")
    steps = [("headgate run games.yaml --once", "land them")]
    if not Path("games.yaml").exists():
        example = "games" if target.servers else "games-embedded"
        steps.insert(0, (f"headgate init {example}", "write a pipeline file"))
    print_next_steps(steps)
