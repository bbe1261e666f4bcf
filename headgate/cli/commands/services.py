"""`headgate up` and `headgate down`: local services for development and tests."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headgate.cli.output import print_next_steps
from headgate.errors import UsageError

if TYPE_CHECKING:
    from headgate.lab.services import Services

_Folder = Annotated[Path, typer.Option(help="Folder of the services' data.")]
_DEFAULT_FOLDER = Path(".headgate")
_DEFAULT_KAFKA_PORT = 9092
_DEFAULT_REGISTRY_PORT = 8081
_DEFAULT_DATABASE_PORT = 3306
_DEFAULT_STORAGE_PORT = 9000
_DEFAULT_CATALOG_PORT = 9083
_DEFAULT_AIRFLOW_PORT = 8080


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
    database: Annotated[
        bool, typer.Option("--database", help="Start a MariaDB database with a binary log instead.")
    ] = False,
    database_port: Annotated[
        int | None,
        typer.Option(
            metavar="PORT",
            help="The database's port, with --database.",
            show_default="3306, or a free one",
        ),
    ] = None,
    storage: Annotated[
        bool, typer.Option("--storage", help="Start an object store with the API of S3 instead.")
    ] = False,
    storage_port: Annotated[
        int | None,
        typer.Option(
            metavar="PORT",
            help="The object store's port, with --storage.",
            show_default="9000, or a free one",
        ),
    ] = None,
    catalog: Annotated[
        bool, typer.Option("--catalog", help="Start a Hive metastore instead.")
    ] = False,
    catalog_port: Annotated[
        int | None,
        typer.Option(
            metavar="PORT",
            help="The metastore's port, with --catalog.",
            show_default="9083, or a free one",
        ),
    ] = None,
    airflow: Annotated[
        bool, typer.Option("--airflow", help="Start Airflow instead, for workflows.")
    ] = False,
    airflow_port: Annotated[
        int | None,
        typer.Option(
            metavar="PORT",
            help="Airflow's port, with --airflow.",
            show_default="8080, or a free one",
        ),
    ] = None,
) -> None:
    """Start a local Kafka broker and schema registry, or another service.

    \b
      headgate up                                            a broker and a registry
      headgate up --kafka-port 19092 --registry-port 18081
      headgate up --database                                 only a database
      headgate up --storage                                  only an object store
      headgate up --catalog                                  only a Hive metastore
      headgate up --airflow                                  only Airflow

    They keep running after the command; their data survives `headgate down`. Needs the extra
    headgate[lab]. The object store is versitygw, built with Go if it is not installed. Airflow
    is installed into an environment of its own.

    Next: headgate simulate games --to kafka, or headgate simulate shop --database
    """
    others = {
        "--database": (database, database_port),
        "--storage": (storage, storage_port),
        "--catalog": (catalog, catalog_port),
        "--airflow": (airflow, airflow_port),
    }
    chosen = [option for option, (wanted, _) in others.items() if wanted]
    if len(chosen) > 1:
        raise UsageError(
            "bad-argument",
            f"{' and '.join(chosen)} are {len(chosen)} services",
            hint="start them one after the other",
        )
    if chosen and (kafka_port, registry_port) != (None, None):
        raise UsageError(
            "bad-argument",
            f"{chosen[0]} does not start a broker or a registry",
            hint="start them with a separate headgate up",
        )
    for option, (wanted, port) in others.items():
        if port is not None and not wanted:
            raise UsageError("bad-argument", f"{option}-port needs {option}")
    if database:
        _up_database(folder, database_port)
    elif storage:
        _up_storage(folder, storage_port)
    elif catalog:
        _up_catalog(folder, catalog_port)
    elif airflow:
        _up_airflow(folder, airflow_port)
    else:
        _up_broker_and_registry(folder, kafka_port, registry_port)


def _up_broker_and_registry(
    folder: Path, kafka_port: int | None, registry_port: int | None
) -> None:
    from headgate.lab import services as lab

    services = lab.up(
        folder,
        _preferred(kafka_port, _DEFAULT_KAFKA_PORT, folder),
        _preferred(registry_port, _DEFAULT_REGISTRY_PORT, folder),
        report=print,
    )
    print("\nFor the pipeline file:\n")
    print("  source:")
    print("    kafka:")
    print(f'      servers: "{services.servers}"')
    print(f"  registry: {services.registry}")
    print_next_steps(_next_steps(folder, services))


def _up_database(folder: Path, port: int | None) -> None:
    from headgate.lab import services as lab

    database = lab.up_database(folder, _preferred_for_database(port, folder), report=print)
    print(f"\nLogin file for MySQL clients: {database.login_file}")
    stop = "headgate down"
    if folder != _DEFAULT_FOLDER:
        # Other commands look for services in the default folder only.
        print_next_steps([(f"{stop} --folder {folder}", "stop it")])
        return
    write = ("headgate simulate shop --database", "run a shop on it and write its change files")
    print_next_steps([write, (stop, "stop it")])


def _up_storage(folder: Path, port: int | None) -> None:
    from headgate.lab import services as lab
    from headgate.lab.object_store import BUCKET, StoreFolder

    last = StoreFolder.of(folder.absolute()).port()
    preferred = port or _unless_used(_DEFAULT_STORAGE_PORT, last is not None)
    settings = lab.up_storage(folder, preferred, report=print).settings
    print("\nFor the pipeline file:\n")
    print(f"  lake: s3://{BUCKET}/games")
    print("  storage:")
    print(f"    endpoint: {settings.endpoint}")
    print(f"    region: {settings.region}")
    print(f"    access_key: {settings.access_key}")
    print(f"    secret_key: {settings.secret_key}")
    stop = "headgate down" if folder == _DEFAULT_FOLDER else f"headgate down --folder {folder}"
    print_next_steps([("headgate jars s3", "fetch the jars for Spark"), (stop, "stop it")])


def _up_catalog(folder: Path, port: int | None) -> None:
    from headgate.lab import services as lab
    from headgate.lab.metastore import MetastoreFolder

    last = MetastoreFolder.of(folder.absolute()).port()
    preferred = port or _unless_used(_DEFAULT_CATALOG_PORT, last is not None)
    metastore = lab.up_catalog(folder, preferred, report=print)
    print("\nFor the pipeline file:\n")
    print("  catalog:")
    print("    name: games")
    print(f"    in: {metastore.url}")
    stop = "headgate down" if folder == _DEFAULT_FOLDER else f"headgate down --folder {folder}"
    print_next_steps([("headgate spark", "query the tables in Spark, by name"), (stop, "stop it")])


def _up_airflow(folder: Path, port: int | None) -> None:
    from headgate.lab import services as lab
    from headgate.lab.airflow import USER, AirflowFolder

    last = AirflowFolder.of(folder.absolute()).port()
    preferred = port or _unless_used(_DEFAULT_AIRFLOW_PORT, last is not None)
    airflow = lab.up_airflow(folder, preferred, report=print)
    print(f"\nIts page: {airflow.url}, as {USER}, with the password in {airflow.password.name}")
    print("\nFor the pipeline file:\n")
    print("  workflow:")
    print("    airflow:")
    print(f"      dags: {airflow.dags}")
    print(f"      url: {airflow.url}")
    print(f"      username: {USER}")
    print(f"      password: {airflow.password}")
    stop = "headgate down" if folder == _DEFAULT_FOLDER else f"headgate down --folder {folder}"
    install = ("headgate workflow install --target airflow", "install the workflow of a pipeline")
    print_next_steps([install, (stop, "stop it")])


def down(folder: _Folder = _DEFAULT_FOLDER) -> None:
    """Stop the services that `headgate up` started; their data is kept.

    \b
      headgate down

    Next: headgate up restarts them with the same data
    """
    from headgate.lab import services as lab

    stopped = lab.down(folder)
    print(f"Stopped: {', '.join(stopped)}" if stopped else f"No services are running in {folder}")


def _next_steps(folder: Path, services: Services) -> list[tuple[str, str]]:
    if folder != _DEFAULT_FOLDER:
        # Other commands look for services in the default folder only.
        where = f" --servers {services.servers} --registry {services.registry}"
        stop = f"headgate down --folder {folder}"
        return [
            (f"headgate simulate games{where}", "create a topic and fill it"),
            (stop, "stop both"),
        ]
    steps = [("headgate simulate games", "create a topic and fill it")]
    if not Path("games.yaml").exists():
        steps.append(("headgate init games", "write a pipeline file with these addresses"))
    return [*steps, ("headgate down", "stop both")]


def _preferred(requested: int | None, default: int, folder: Path) -> int | None:
    """Return the default port; None if it is in use or another one was used before."""
    if requested is not None:
        return requested
    from headgate.lab.services import read_services

    return _unless_used(default, read_services(folder.absolute()) is not None)


def _preferred_for_database(requested: int | None, folder: Path) -> int | None:
    if requested is not None:
        return requested
    from headgate.lab.database import database_folder

    return _unless_used(
        _DEFAULT_DATABASE_PORT, database_folder(folder.absolute()).port() is not None
    )


def _unless_used(port: int, used_before: bool) -> int | None:
    from headgate.lab.process import is_free

    return port if not used_before and is_free(port) else None
