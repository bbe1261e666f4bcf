"""`headgate up` and `headgate down`: a broker and a registry on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headgate.cli.next_steps import print_next_steps

if TYPE_CHECKING:
    from headgate.local import Services

_Folder = Annotated[Path, typer.Option(help="Where the services keep their data.")]
_DEFAULT_FOLDER = Path(".headgate")
_USUAL_KAFKA_PORT = 9092
_USUAL_REGISTRY_PORT = 8081


def up(
    folder: _Folder = _DEFAULT_FOLDER,
    kafka_port: Annotated[
        int | None,
        typer.Option(metavar="PORT", help="The broker's port.", show_default="9092, or a free one"),
    ] = None,
    registry_port: Annotated[
        int | None,
        typer.Option(
            metavar="PORT", help="The registry's port.", show_default="8081, or a free one"
        ),
    ] = None,
) -> None:
    """Start a real broker and registry on this machine, to try things.

    \b
      headgate up
      headgate up --kafka-port 19092 --registry-port 18081

    They go on after the command; what they hold survives `headgate down`.

    Next: headgate simulate games --to kafka
    """
    from headgate import local

    services = local.up(
        folder,
        _preferred(kafka_port, _USUAL_KAFKA_PORT, folder),
        _preferred(registry_port, _USUAL_REGISTRY_PORT, folder),
        say=print,
    )
    print("\nIn the pipeline file:\n")
    print("  source:")
    print("    kafka:")
    print(f'      servers: "{services.servers}"')
    print(f"  registry: {services.registry}")
    print_next_steps(_next_steps(folder, services))


def down(folder: _Folder = _DEFAULT_FOLDER) -> None:
    """Stop what `headgate up` started; its data stays.

    \b
      headgate down

    Next: headgate up starts the same again
    """
    from headgate import local

    stopped = local.down(folder)
    print(f"Stopped: {', '.join(stopped)}" if stopped else f"Nothing runs in {folder}")


def _next_steps(folder: Path, services: Services) -> list[tuple[str, str]]:
    if folder != _DEFAULT_FOLDER:
        # Other commands look for services in the usual folder only.
        where = f" --servers {services.servers} --registry {services.registry}"
        stop = f"headgate down --folder {folder}"
        return [
            (f"headgate simulate games{where}", "make a topic and fill it"),
            (stop, "stop both"),
        ]
    steps = [("headgate simulate games", "make a topic and fill it")]
    if not Path("games.yaml").exists():
        steps.append(("headgate init games", "write a pipeline file with these addresses"))
    return [*steps, ("headgate down", "stop both")]


def _preferred(asked: int | None, usual: int, folder: Path) -> int | None:
    """The usual port, unless it is taken or other ones were used before."""
    if asked is not None:
        return asked
    from headgate.local.ports import is_free
    from headgate.local.services_file import read_services

    used_before = read_services(folder.absolute()) is not None
    return usual if not used_before and is_free(usual) else None
