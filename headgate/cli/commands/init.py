"""`headgate init`: write a pipeline file from an example."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from headgate.cli.output import print_next_steps, styled
from headgate.errors import UsageError
from headgate.examples import EXAMPLES, Example, find_example


def init(
    example: Annotated[
        str | None,
        typer.Argument(
            metavar="EXAMPLE",
            help=f"One of {', '.join(each.name for each in EXAMPLES)}.",
            show_default="games",
        ),
    ] = None,
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where to write it.")] = Path(
        "."
    ),
) -> None:
    """Write a pipeline file from an example.

    \b
      headgate init games             many games on one Kafka topic
      headgate init games-embedded    the same from a Delta table, without a server
      headgate init confluent         topics in Confluent's framing
      headgate init pizza             waiting times of pizza stores, predicted by a model
      headgate init pizza-embedded    the same from a Delta table, without a server
      headgate init shop              change files of a database

    Next: headgate check
    """
    chosen = find_example(example) if example else _ask()
    path = folder / f"{chosen.pipeline}.yaml"
    for each in (path, *(folder / name for name in chosen.files)):
        if each.exists():
            raise UsageError(
                "already-exists",
                f"{each} already exists; it was not changed",
                hint=f"choose another folder: headgate init {chosen.name} FOLDER",
            )
    services = _running_services() if chosen.needs_services else None
    text = chosen.text(*services) if services else chosen.text()
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
    for name in chosen.files:
        (folder / name).write_text(chosen.file(name), "utf-8")
    print(f"Wrote {path}: {chosen.summary}")
    if chosen.files:
        print(f"Beside it: {', '.join(chosen.files)}")
    if services:
        print(f"It uses the local services at {services[0]}")
    print_next_steps(_next_steps(chosen, path, bool(services)))


def _ask() -> Example:
    if not sys.stdin.isatty():
        return EXAMPLES[0]
    width = max(len(each.name) for each in EXAMPLES)
    print("Which example?")
    for position, each in enumerate(EXAMPLES, start=1):
        print(f"  {position}  {styled(each.name.ljust(width), 'cyan')}  {each.summary}")
    answer = input("Number or name [1]: ").strip() or "1"
    if answer.isdecimal() and 1 <= int(answer) <= len(EXAMPLES):
        return EXAMPLES[int(answer) - 1]
    return find_example(answer)


def _running_services() -> tuple[str, str] | None:
    from headgate.lab.services import find

    services = find()
    return (services.servers, services.registry) if services else None


def _next_steps(example: Example, path: Path, running: bool) -> list[tuple[str, str]]:
    run = (f"headgate run {path} --once", "land the available records")
    if example.name == "confluent":
        return [(f"headgate doctor {path}", "check the connection to broker and registry"), run]
    parent = path.parent
    if example.name == "shop":
        where = "" if parent == Path() else f" --to {parent / 'landing'}"
        return [(f"headgate simulate shop{where}", "create change files"), run]
    if example.pipeline == "pizza":
        return _pizza_steps(example, path, running, run)
    if not example.needs_services:
        where = (
            "" if parent == Path() else f" --inbox {parent / 'inbox'} --registry {parent}/schemas"
        )
        return [(f"headgate simulate games --to delta{where}", "create records"), run]
    simulate = ("headgate simulate games --to kafka", "create records")
    if running:
        return [simulate, run]
    return [("headgate up", "start a local broker and registry"), simulate, run]


def _pizza_steps(
    example: Example, path: Path, running: bool, run: tuple[str, str]
) -> list[tuple[str, str]]:
    train = (f"headgate model train {path}", "train a model on what has landed")
    if example.needs_services:
        steps = [("headgate simulate pizza --history 14d", "create records"), run, train]
        start = ("headgate up", "start a local broker and registry")
        return steps if running else [start, *steps]
    parent = path.parent
    where = "" if parent == Path() else f" --inbox {parent / 'inbox'} --registry {parent}/schemas"
    return [
        (f"headgate simulate pizza --to delta --history 14d{where}", "create records"),
        run,
        train,
    ]
