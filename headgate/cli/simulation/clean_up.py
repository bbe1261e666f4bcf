"""Removes what an earlier simulation sent, and nothing else."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from headgate.cli.amounts import counted
from headgate.cli.simulation.target import Target
from headgate.errors import SourceError, UsageError
from headgate.simulate.games import games

_NAMED_GAMES = 30
_PATIENCE = 30.0
_PAUSE = 0.1


def clean_up(target: Target) -> Iterator[str]:
    """Remove topic or inbox and the schemas in a folder; says what was removed."""
    if target.servers is not None:
        if _remove_topic(target.servers, target.topic):
            yield f"topic {target.topic}"
    elif _remove_inbox(target.inbox):
        yield f"inbox {target.inbox}"
    if target.has_folder:
        count = _remove_schemas(Path(target.registry))
        if count:
            yield f"{counted(count, 'schema')} in {target.registry}"


def _remove_topic(servers: str, topic: str) -> bool:
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    try:
        if topic not in admin.list_topics(timeout=10).topics:
            return False
        admin.delete_topics([topic])[topic].result(_PATIENCE)
        give_up = time.monotonic() + _PATIENCE
        # A topic of the same name can be made only once the broker has forgotten the old one.
        while topic in admin.list_topics(timeout=10).topics and time.monotonic() < give_up:
            time.sleep(_PAUSE)
    except KafkaException as error:
        raise SourceError(
            "source-missing",
            f"topic {topic} at {servers} cannot be removed ({error.args[0].str()})",
            hint="headgate up starts a broker on this machine",
        ) from None
    return True


def _remove_inbox(inbox: Path) -> bool:
    if not inbox.exists():
        return False
    if not (inbox / "_delta_log").is_dir():
        raise UsageError(
            "bad-argument",
            f"{inbox} is not a Delta table, and is left as it is",
            hint="check --inbox",
        )
    shutil.rmtree(inbox)
    return True


def _remove_schemas(folder: Path) -> int:
    names = "|".join(game.name for game in games(_NAMED_GAMES))
    simulated = re.compile(rf"\d+\.(?:{names})(?:_\d+)?-value\.proto")
    found = [path for path in folder.glob("*.proto") if simulated.fullmatch(path.name)]
    for path in found:
        path.unlink()
    return len(found)
