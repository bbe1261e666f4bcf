"""`python -m headgate`, where the command is not on the PATH."""

from __future__ import annotations

from headgate.cli.main import main

if __name__ == "__main__":
    main()
