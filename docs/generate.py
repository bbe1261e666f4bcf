"""Writes docs/reference anew from the code, so that it cannot differ from it."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa

REFERENCE = Path(__file__).parent / "reference"


def pages() -> dict[str, str]:
    """Every generated page by its file's name."""
    return {
        "pipeline-file.md": _pipeline_file(),
        "commands.md": _commands(),
        "errors.md": _errors(),
        "quarantine.md": _quarantine(),
        "tables.md": _tables(),
    }


def _pipeline_file() -> str:
    from headgate.pipeline import (
        Confluent,
        Delta,
        Kafka,
        Pipeline,
        Registry,
        Security,
        Wrapper,
    )

    sections = [
        ("The file", Pipeline),
        ("`source.kafka`", Kafka),
        ("`source.kafka.security`", Security),
        ("`source.delta`", Delta),
        ("`registry`", Registry),
        ("`envelope.wrapper`", Wrapper),
        ("`envelope.confluent`", Confluent),
    ]
    text = "# Pipeline file\n\nUnknown keys are errors. Relative paths are relative to the file.\n"
    for title, model in sections:
        text += f"\n## {title}\n\n| key | default | meaning |\n|---|---|---|\n"
        for name, field in model.model_fields.items():
            text += f"| `{name}` | {_default(field)} | {_one_line(field.description)} |\n"
    return text


def _default(field: Any) -> str:
    if field.is_required():
        return "needed"
    value = field.get_default() if field.default_factory is None else None
    if value is None or value == ():
        return ""
    return f"`{getattr(value, 'value', value)}`"


def _commands() -> str:
    from typer.main import get_command

    from headgate.cli.main import app

    text = "# Commands\n"
    root: Any = get_command(app)
    for name, command in _leaves(root, ()):
        context = command.make_context(" ".join(("headgate", *name)), [], resilient_parsing=True)
        context.max_content_width = context.terminal_width = 80
        text += f"\n## headgate {' '.join(name)}\n\n```text\n{command.get_help(context)}\n```\n"
    return text


def _leaves(group: Any, path: tuple[str, ...]) -> list[tuple[tuple[str, ...], Any]]:
    found = []
    for name, command in group.commands.items():
        if getattr(command, "hidden", False):
            continue
        if hasattr(command, "commands"):
            found += _leaves(command, (*path, name))
        else:
            found.append(((*path, name), command))
    return found


def _errors() -> str:
    from headgate.errors import CODES

    text = "# Error codes\n\nCodes are stable; texts may become better.\n\n"
    text += "| code | meaning |\n|---|---|\n"
    return text + "".join(f"| `{code}` | {meaning} |\n" for code, meaning in CODES.items())


def _quarantine() -> str:
    from headgate.quarantine.reason import Reason

    text = "# Quarantine reasons\n\n| reason | meaning |\n|---|---|\n"
    return text + "".join(f"| `{reason.value}` | {reason.text} |\n" for reason in Reason)


def _tables() -> str:
    from headgate.land.ledger import LEDGER
    from headgate.quarantine.quarantined import QUARANTINE
    from headgate.schema.origin import ORIGIN

    return (
        "# Tables\n\n## Silver\n\nThe columns of the message, and where the record came from:\n\n"
        + _columns(ORIGIN)
        + "\n## Bronze\n\n`route` (the partition), `payload`, and the same columns.\n"
        + "\n## Quarantine\n\n"
        + _columns(QUARANTINE)
        + "\n## Ledger\n\n"
        + _columns(LEDGER)
    )


def _columns(schema: pa.Schema) -> str:
    from headgate.schema.fit import type_name

    rows = "".join(f"| `{field.name}` | {type_name(field.type)} |\n" for field in schema)
    return f"| column | type |\n|---|---|\n{rows}"


def _one_line(text: str | None) -> str:
    return re.sub(r"\s+", " ", text or "").replace("|", "\\|")


if __name__ == "__main__":
    REFERENCE.mkdir(exist_ok=True)
    for name, page in pages().items():
        (REFERENCE / name).write_text(page)
        print(f"docs/reference/{name}", file=sys.stderr)
