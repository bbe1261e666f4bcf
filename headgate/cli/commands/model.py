"""`headgate model`: train, compare, promote and explain the models of predictions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from headgate.amounts import counted, number
from headgate.cli.help import GroupedOptions
from headgate.cli.output import (
    JsonOption,
    ago,
    print_columns,
    print_json,
    print_next_steps,
    styled,
)
from headgate.cli.pipeline_argument import PipelineArgument, find_pipeline, split_arguments

if TYPE_CHECKING:
    from headgate.config import PipelineConfig
    from headgate.models.train import Evaluation, Score

app = typer.Typer(
    rich_markup_mode=None, help="Train, compare, promote and explain the models of predictions."
)

NameArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="NAME",
        help="A prediction of the pipeline; optional if it has only one.",
        show_default=False,
    ),
]
VersionOption = Annotated[
    int | None,
    typer.Option("--version", metavar="N", min=1, help="Version of the model.", show_default=False),
]


def _load(pipeline: str | None, name: str | None) -> tuple[str, PipelineConfig, str]:
    """Return the pipeline file, the pipeline and the prediction that the command is about."""
    from headgate.config import load_pipeline
    from headgate.models.registry import require_models

    require_models()
    from headgate.models.train import declared_prediction

    named, wanted = split_arguments(pipeline, name)
    file = find_pipeline(named)
    loaded = load_pipeline(file)
    return file, loaded, declared_prediction(loaded, wanted)


@app.command(cls=GroupedOptions)
def train(
    pipeline: PipelineArgument = None,
    name: NameArgument = None,
    promote: Annotated[
        bool | None,
        typer.Option(
            "--promote/--no-promote",
            help="Let it predict, or not, whatever it is like.",
            show_default="as declared",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Train a new version of a model, and promote it if it is better.

    \b
    Examples:
      headgate model train pizza.yaml
      headgate model train pizza.yaml wait_times --no-promote

    It learns from the labels of earlier days and is compared on the last fifth of the days, which
    it has not seen: with the model that serves, with the fallback, and with the mean of the last 20
    labels. With `promote: when_better` it serves from then on if its error is lower than that of
    the model that serves, or than the fallback's if there is none. Needs no Spark; a run notices
    the new version by itself. Needs the extra headgate[models].

    Next: headgate model explain PIPELINE
    """
    file, loaded, chosen = _load(pipeline, name)
    from headgate.models.train import train as train_model

    found = train_model(loaded, chosen, promote=promote)
    if as_json:
        print_json(found)
        return
    examples = counted(found.examples, "label")
    print(f"Trained {styled(found.version.uri, 'bold')} with {examples} of {found.days} days\n")
    _print_evaluation(found.evaluation)
    state = styled("promoted", "green") if found.promoted else styled("not promoted", "yellow")
    print(f"\n{found.version.uri} is {state}: {found.reason}")
    version = found.version.version
    promoting = (f"headgate model promote {file} --version {version}", "let it predict")
    explaining = (
        f"headgate model explain {file} --version {version}",
        "show which features matter",
    )
    print_next_steps([explaining] if found.promoted else [explaining, promoting])


@app.command(cls=GroupedOptions)
def evaluate(
    pipeline: PipelineArgument = None,
    name: NameArgument = None,
    days: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Last days.", show_default="a fifth of all days"),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Compare the model that serves with its rivals, on the last days.

    \b
    Examples:
      headgate model evaluate pizza.yaml
      headgate model evaluate pizza.yaml --days 1

    The error is the mean absolute difference to the label, in the label's unit, on the same
    moments for all. A model that has learned from these days looks better than it is.

    Next: headgate model train PIPELINE
    """
    _, loaded, chosen = _load(pipeline, name)
    from headgate.models.train import evaluate as evaluate_model

    found = evaluate_model(loaded, chosen, days)
    if as_json:
        print_json(found)
        return
    _print_evaluation(found)


@app.command(cls=GroupedOptions)
def promote(
    pipeline: PipelineArgument = None,
    name: NameArgument = None,
    version: VersionOption = None,
    as_json: JsonOption = False,
) -> None:
    """Let a version predict from now on: the newest, or --version.

    \b
    Examples:
      headgate model promote pizza.yaml
      headgate model promote pizza.yaml --version 3     back to an earlier one

    It sets the alias `serving` in the registry; a run notices within seconds.

    Next: headgate status PIPELINE
    """
    _, loaded, chosen = _load(pipeline, name)
    from headgate.models.train import promote_version

    found = promote_version(loaded, chosen, version)
    if as_json:
        print_json(found)
        return
    print(f"{found.uri} serves")


@app.command("list", cls=GroupedOptions)
def list_versions(
    pipeline: PipelineArgument = None, name: NameArgument = None, as_json: JsonOption = False
) -> None:
    """List the versions of a model, the newest first.

    \b
    Examples:
      headgate model list pizza.yaml

    Errors are those that were measured after training, on days that the version had not seen.

    Next: headgate model promote PIPELINE --version N
    """
    file, loaded, chosen = _load(pipeline, name)
    from headgate.models.registry import ModelRegistry, model_name

    found = ModelRegistry.of(loaded).versions(model_name(loaded.model_uri(chosen)))
    if as_json:
        print_json(found)
        return
    if not found:
        print("No model has been trained yet")
        print_next_steps([(f"headgate model train {file}", "train one on what has landed")])
        return
    print_columns(
        ("VERSION", "", "ERROR", "IN RANGE", "LEARNED UNTIL", "LABELS", "TRAINED"),
        [
            (
                str(each.version),
                "serving" if each.serving else "",
                _amount(each.metrics.get("mae")),
                _share(each.metrics.get("coverage")),
                each.params.get("trained_until", ""),
                number(int(each.params.get("trained_examples", 0))),
                ago(each.created_at),
            )
            for each in found
        ],
        right=("VERSION", "ERROR", "IN RANGE", "LABELS"),
    )


@app.command(cls=GroupedOptions)
def explain(
    pipeline: PipelineArgument = None,
    name: NameArgument = None,
    version: VersionOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show which features matter: how much worse predictions get without each.

    \b
    Examples:
      headgate model explain pizza.yaml
      headgate model explain pizza.yaml --version 3

    The values of a feature are shuffled between the moments of the last days; what that adds to
    the error is what the feature is worth. Features that say the same share their worth.

    Next: headgate model train PIPELINE, after a change of the features
    """
    _, loaded, chosen = _load(pipeline, name)
    from headgate.models.train import explain as explain_model

    found = explain_model(loaded, chosen, version)
    if as_json:
        print_json(found)
        return
    most = max((each.error_added for each in found), default=0.0) or 1.0
    print_columns(
        ("FEATURE", "ERROR ADDED", ""),
        [
            (each.feature, f"{each.error_added:+.2f}", "█" * round(20 * each.error_added / most))
            for each in found
        ],
        right=("ERROR ADDED",),
    )


def _print_evaluation(found: Evaluation) -> None:
    moments = counted(found.moments, "label")
    print(f"{found.prediction}: {moments} of {counted(found.days, 'day')} since {found.begin}\n")
    best = min((each.mae for each in found.scores), default=0.0)
    print_columns(
        ("", "ERROR", "OF BEST", "IN RANGE", "LABELS"),
        [_score_row(each, best) for each in found.scores],
        right=("ERROR", "OF BEST", "IN RANGE", "LABELS"),
    )
    if found.serving_error is not None:
        print(f"\nThe serving model fails: {found.serving_error}")


def _score_row(score: Score, best: float) -> tuple[str, ...]:
    return (
        score.name,
        _amount(score.mae),
        f"{score.mae / best:.2f} x" if best else "",
        _share(score.coverage),
        number(score.moments),
    )


def _amount(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.0%}"
