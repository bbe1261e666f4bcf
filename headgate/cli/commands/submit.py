"""`headgate submit`: run a pipeline on a cluster by spark-submit."""

from __future__ import annotations

import os
import shlex
import sys
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from headgate.cli.output import styled
from headgate.cli.pipeline_argument import (
    ConfOption,
    PipelineArgument,
    find_pipeline,
    with_settings,
)
from headgate.errors import UsageError

if TYPE_CHECKING:
    from headgate.engine.submit import Submission

_MODES = ("client", "cluster")


def submit(
    pipeline: PipelineArgument = None,
    master: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="The cluster: spark://HOST:7077, yarn, k8s://https://HOST:6443.",
            show_default="from the pipeline file",
        ),
    ] = None,
    deploy_mode: Annotated[
        str,
        typer.Option(
            metavar="client|cluster", help="Where the driver runs: here, or in the cluster."
        ),
    ] = "client",
    once: Annotated[
        bool, typer.Option("--once", help="Land what the source has now, then exit.")
    ] = False,
    shard: Annotated[
        str | None,
        typer.Option(metavar="N/OF", help="Land one of the pipeline's shards: 2/4."),
    ] = None,
    conf: ConfOption = None,
    pack: Annotated[
        str | None,
        typer.Option(
            metavar="auto|none|PATH",
            help="Packages for executors: those of this environment, none if they have them, or an"
            " archive that was built before (a file or a URL).",
            show_default="auto",
        ),
    ] = None,
    print_call: Annotated[
        bool, typer.Option("--print", help="Print the spark-submit call instead of running it.")
    ] = False,
) -> None:
    """Run a pipeline on a cluster whose machines have Spark and Python, but not Headgate.

    \b
    Examples:
      headgate submit games.yaml --master spark://main:7077
      headgate submit games.yaml --master yarn --deploy-mode cluster
      headgate submit games.yaml --master k8s://https://main:6443 --print

    Sends executors this environment's packages and the jars. Secrets are resolved where the
    driver runs, and are not part of the call.

    Next: headgate status PIPELINE
    """
    from headgate.config import load_pipeline
    from headgate.engine.submit import Submission, pack_of

    if deploy_mode not in _MODES:
        raise UsageError("bad-argument", "--deploy-mode is `client` or `cluster`")
    file = find_pipeline(pipeline)
    overrides = list(conf or ())
    chosen = [f"spark.master={master}"] if master else []
    chosen += [f"spark.headgate.pack={_located(pack)}"] if pack else []
    declared = with_settings(load_pipeline(file), [*overrides, *chosen])
    keys = [one.partition("=")[0] for one in overrides]
    submission = Submission(
        declared,
        file,
        "cluster" if deploy_mode == "cluster" else "client",
        (*(["--once"] if once else []), *(["--shard", shard] if shard else [])),
        {key: str(declared.spark[key]) for key in keys},
    )
    submission.check()
    _warn(submission)
    call = submission.call(pack_of(submission, partial(print, file=sys.stderr)))
    if print_call:
        print(" \\\n  ".join(_lines(call)))
        return
    sys.stdout.flush()
    os.execve(call[0], call, {**os.environ, **submission.environment()})


def _located(pack: str) -> str:
    from headgate.config.location import is_remote

    if pack in ("auto", "none") or is_remote(pack):
        return pack
    if not os.path.isfile(pack):
        raise UsageError("bad-argument", f"--pack: there is no file {pack}")
    return os.path.abspath(pack)


def _warn(submission: Submission) -> None:
    label = styled("warning:", "yellow", sys.stderr)
    for key, path in submission.not_shared().items():
        print(f"{label} `{key}` must be on a mount of all machines: {path}", file=sys.stderr)
    if secrets := submission.secrets():
        listed = ", ".join(map(str, secrets))
        print(f"{label} the driver needs these where it runs: {listed}", file=sys.stderr)


def _lines(call: list[str]) -> list[str]:
    """Return the call with an option and its value on each line, and the program last."""
    words = [shlex.quote(word) for word in call]
    at, lines = 1, words[:1]
    while words[at].startswith("--"):
        lines.append(" ".join(words[at : at + 2]))
        at += 2
    return [*lines, " ".join(words[at:])]
