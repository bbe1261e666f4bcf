"""Local services, simulators and the demo.

The demo needs nothing but Headgate; the services, the shop and the pizza stores need the
extra `headgate[lab]`.
"""

from __future__ import annotations

from importlib.util import find_spec

from headgate.errors import extra_missing

_PACKAGES = {
    "fastavro": "fastavro",
    "psutil": "psutil",
    "pymysql": "pymysql",
    "pymysqlreplication": "mysql-replication",
}


def require_lab(*modules: str) -> None:
    """Raise SetupError `extra-missing` unless these modules of `headgate[lab]` are installed."""
    missing = [_PACKAGES[module] for module in modules if find_spec(module) is None]
    if missing:
        raise extra_missing("lab", missing)
