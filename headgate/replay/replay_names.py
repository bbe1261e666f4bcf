"""What the replays of a pipeline are called, beside the pipeline itself.

No pipeline can have such a name.
"""

from __future__ import annotations


def name_in_ledger(pipeline: str) -> str:
    return f"{pipeline}:replay"


def name_of_files(pipeline: str) -> str:
    return f"{pipeline}.replay"
