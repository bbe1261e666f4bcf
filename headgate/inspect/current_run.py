"""Whether a run of the pipeline is going on."""

from __future__ import annotations

import fcntl
import json
import os
from dataclasses import dataclass
from pathlib import Path

from headgate.pipeline import AnyPipeline


@dataclass(frozen=True)
class CurrentRun:
    """The process that lands at this moment."""

    pid: int


def find_current_run(pipeline: AnyPipeline) -> CurrentRun | None:
    path = Path(f"{pipeline.checkpoint.rstrip('/')}.lock")
    try:
        pid = int(json.loads(path.read_text())["pid"])
        os.kill(pid, 0)
    except PermissionError:
        pass
    except (OSError, ValueError, KeyError, TypeError):
        return None
    # Only now, because a look at the lock takes it for a moment, and a run may want it just then.
    return CurrentRun(pid) if _is_held(path) else None


def _is_held(path: Path) -> bool:
    try:
        with path.open() as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False
