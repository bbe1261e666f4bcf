"""`headgate serve`: queries over HTTP."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer

from headgate.cli.output import print_next_steps
from headgate.cli.pipeline_argument import PipelineArgument, find_pipeline
from headgate.errors import UsageError, extra_missing, shown

if TYPE_CHECKING:
    from headgate.serve.http import HttpServer

_PACKAGES = ("starlette", "uvicorn")


def serve(
    pipeline: PipelineArgument = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0 for any free one.")] = 8321,
    token_env: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Environment variable with the bearer token that requests must have.",
        ),
    ] = None,
    max_readers: Annotated[
        int, typer.Option(metavar="N", min=1, help="Most requests at the same time.")
    ] = 200,
    query_timeout: Annotated[
        str, typer.Option(metavar="TIME", help="Longest time of one query, or of one change.")
    ] = "1m",
    query_memory: Annotated[
        str, typer.Option(metavar="SIZE", help="Most memory of one query.")
    ] = "1g",
) -> None:
    """Answer queries over HTTP, and stream changes.

    \b
    Examples:
      headgate serve pizza.yaml
      headgate serve pizza.yaml --host 0.0.0.0 --token-env HEADGATE_TOKEN

    GET /query?sql=SELECT … returns rows as JSON. With EMIT CHANGES it returns server-sent events:
    the rows so far, then every change as it is committed. The id of an event is its token;
    a reader that reconnects with Last-Event-ID gets everything after it, once. An address
    that other machines can reach needs --token-env. Needs the extra headgate[serve].

    Next: headgate query PIPELINE "SELECT …"
    """
    token = _token(token_env)
    limits = query_timeout, query_memory
    server = _server(find_pipeline(pipeline), host, port, token, max_readers, *limits)
    print(f"Answering queries on {server.url} until Ctrl-C")
    print_next_steps([(f"curl {server.url}", "what there is, with an example")])
    with suppress(KeyboardInterrupt):
        server.run()


def _token(name: str | None) -> str | None:
    if name is None:
        return None
    if token := os.environ.get(name, "").strip():
        return token
    raise UsageError(
        "secret-missing",
        f"the environment variable {shown(name)} is not set",
        hint=f'export {name}="$(openssl rand -hex 32)"',
    )


def _server(
    file: str,
    host: str,
    port: int,
    token: str | None,
    max_readers: int,
    query_timeout: str,
    query_memory: str,
) -> HttpServer:
    from headgate.config import Duration, Size, load_pipeline

    try:
        from headgate.serve.http import HttpServer
        from headgate.serve.worker import Limits
    except ModuleNotFoundError as missing:
        if missing.name not in _PACKAGES:
            raise
        raise extra_missing("serve", [missing.name]) from None
    limits = Limits(Duration.parse(query_timeout).total_seconds(), int(Size.parse(query_memory)))
    return HttpServer(load_pipeline(file), host, port, token, max_readers, limits)
