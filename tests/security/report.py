"""Run commands one after the other in this process, then show a pipeline in every form it has."""

from __future__ import annotations

import json
import pickle
import sys

from headgate.cli.main import run_command
from headgate.config import load_pipeline


def main() -> None:
    for words in json.loads(sys.argv[2]):
        print("$ headgate", *words, flush=True)
        print("exit", run_command(words), flush=True)
    pipeline = load_pipeline(sys.argv[1])
    print(
        pipeline, repr(pipeline), pipeline.model_dump(), pipeline.model_dump_json(), vars(pipeline)
    )
    print(pickle.dumps(pipeline))


if __name__ == "__main__":
    main()
