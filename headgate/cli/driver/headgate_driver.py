"""The program that `spark-submit` starts."""

from __future__ import annotations

from headgate.cli.main import main

if __name__ == "__main__":
    main()
