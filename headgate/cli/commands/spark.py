"""`headgate spark`: a Spark shell that has the tables of a pipeline."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from headgate.cli.output import print_rows
from headgate.cli.pipeline_argument import PipelineArgument, find_pipeline, quiet_spark
from headgate.errors import LandingError, UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headgate.config import PipelineConfig


def spark(
    pipeline: PipelineArgument = None,
    sql: Annotated[
        str | None, typer.Option(help="Run this statement instead, and print its rows.")
    ] = None,
    print_settings: Annotated[
        bool, typer.Option("--print", help="Print the settings for another Spark instead.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="With --sql: print JSON lines, as in a pipe.")
    ] = False,
) -> None:
    """Open a PySpark shell in which the tables have their names.

    \b
    Examples:
      headgate spark games.yaml
      headgate spark games.yaml --sql "SELECT count(*) FROM games.silver_chess"
      headgate spark games.yaml --print >> conf/spark-defaults.conf

    Names are those of the pipeline's catalog. Without one, a table is delta.`/lake/silver_chess`.
    Secrets are never printed: their lines are comments with the reference.

    Next: headgate status PIPELINE shows what is registered
    """
    from headgate.config import load_pipeline

    if print_settings and sql is not None:
        raise UsageError("bad-argument", "--print and --sql exclude each other")
    if as_json and sql is None:
        raise UsageError("bad-argument", "--json needs --sql")
    declared = load_pipeline(find_pipeline(pipeline))
    if print_settings:
        from headgate.catalog.session import spark_defaults

        print("\n".join(spark_defaults(declared)))
        return
    with quiet_spark():
        from headgate.catalog.session import catalog_session

        session = catalog_session(declared)
        if sql is not None:
            _print_result(session, declared, sql, as_json or not sys.stdout.isatty())
        else:
            _interact(session, declared)


def _print_result(session: SparkSession, pipeline: PipelineConfig, sql: str, as_json: bool) -> None:
    import logging

    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    # PySpark also logs the error that it raises, with the stack of Java.
    logging.getLogger("SQLQueryContextLogger").disabled = True
    try:
        rows = session.sql(sql).toArrow()
    except (PySparkException, Py4JJavaError) as error:
        message = str(error).strip().splitlines()[0]
        raise LandingError("bad-query", message, hint=_names(pipeline)) from error
    print_rows(rows, as_json)


def _interact(session: SparkSession, pipeline: PipelineConfig) -> None:
    import code
    from contextlib import suppress

    with suppress(ImportError):  # not in every build of Python
        import readline
        import rlcompleter

        readline.set_completer(rlcompleter.Completer({"spark": session}).complete)
        readline.parse_and_bind("tab: complete")
    banner = f"Spark {session.version} as `spark`; {_names(pipeline)}; Ctrl-D ends"
    names = {"spark": session, "sc": session.sparkContext}
    code.interact(banner, local=names, exitmsg="")


def _names(pipeline: PipelineConfig) -> str:
    """How tables are named in SQL."""
    if pipeline.catalog is not None:
        return f"tables are {pipeline.catalog.name_of('TABLE')}"
    return f"without a `catalog` in the pipeline file, tables are delta.`{pipeline.lake}/TABLE`"
