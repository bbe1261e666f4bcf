"""Where secrets come from: one function per scheme of references.

Packages add schemes with entry points of the group `headgate.secrets`: the name is the scheme, the
value a function from what follows `scheme:` to the secret.
"""

from __future__ import annotations

import base64
import os
import re
import threading
import time
from collections.abc import Callable, Mapping
from functools import cache, partial
from importlib.metadata import EntryPoint, entry_points

from headgate.errors import HeadgateError, PipelineFileError, extra_missing, listed

PLUG_INS = "headgate.secrets"
"""Group of the entry points that add schemes."""

Read = Callable[[str], str | None]
"""Returns the secret with a name, which is the reference without its scheme; None if missing."""

_FORMS = {
    "env": re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII),
    "file": re.compile(r".*[^/].*"),
    "databricks": re.compile(r"[\w.@-]{1,128}/[\w.-]{1,128}", re.ASCII),
}
_KEPT_SECONDS = 60.0
"""How long the secret of a service is kept. Storage keys are resolved for every access to a table,
and a service takes milliseconds to answer, may limit its requests, and keeps a log of them."""


def _read_variable(name: str) -> str | None:
    return os.environ.get(name)


def _read_file(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().rstrip("\r\n")
    except (OSError, UnicodeDecodeError):
        return None


def _read_databricks(name: str) -> str | None:
    """Return a secret of a Databricks secret scope, with the login of this process."""
    try:
        from databricks.sdk import WorkspaceClient
        from databricks.sdk.config import Config
    except ImportError:
        raise extra_missing("databricks", ["databricks-sdk"]) from None
    scope, _, key = name.partition("/")
    if "DATABRICKS_RUNTIME_VERSION" in os.environ:
        # Not elsewhere: this import starts a session if Databricks Connect is installed.
        from databricks.sdk.runtime import dbutils

        return str(dbutils.secrets.get(scope, key))
    # By default, requests to a workspace that does not answer are repeated for five minutes.
    config = Config(product="headgate", http_timeout_seconds=10, retry_timeout_seconds=30)
    encoded = WorkspaceClient(config=config).secrets.get_secret(scope, key).value
    return base64.b64decode(encoded or "").decode()


_OF_THIS_MACHINE: Mapping[str, Read] = {"env": _read_variable, "file": _read_file}
_BUILT_IN: Mapping[str, Read] = {**_OF_THIS_MACHINE, "databricks": _read_databricks}


@cache
def sources() -> Mapping[str, Read]:
    """Return the functions by scheme. A package cannot replace a scheme of Headgate's."""
    added = {one.name: partial(_call, one) for one in entry_points(group=PLUG_INS)}
    return {**added, **_BUILT_IN}


def _call(plug_in: EntryPoint, name: str) -> str | None:
    found: str | None = plug_in.load()(name)
    return found


def is_of_this_machine(scheme: str) -> bool:
    """Whether each machine has its own secrets of a scheme, rather than a service for all."""
    return scheme in _OF_THIS_MACHINE


def is_reference(scheme: str, name: str) -> bool:
    """Whether a known source could have a secret with this name."""
    if not name.isprintable() or not name.strip():
        return False
    form = _FORMS.get(scheme)
    # Plug-ins are looked for last: it takes a while with many packages.
    return form.fullmatch(name) is not None if form else scheme in sources()


def hint() -> str:
    """Return how to write a reference, with the schemes that are installed."""
    added = [f"{scheme}:…" for scheme in sorted(sources().keys() - _BUILT_IN.keys())]
    known = listed(("env:NAME", "file:/path", "databricks:scope/key", *added))
    return f"write a reference: {known}; other schemes need a plug-in"


_kept: dict[tuple[str, str], tuple[str, float]] = {}
_reading = threading.RLock()


def read_secret(scheme: str, name: str) -> str | None:
    """Return a secret; None if this machine does not have it. Raise if no service does."""
    if scheme in _OF_THIS_MACHINE:
        return _OF_THIS_MACHINE[scheme](name)
    with _reading:
        value, until = _kept.get((scheme, name), (None, 0.0))
        if time.monotonic() >= until:
            found, problem = _ask(scheme, name)
            # A run outlasts a service that is down for a while: it keeps the last value.
            value = found or value
            if value is None:
                raise PipelineFileError(
                    "secret-missing",
                    f"the secret `{scheme}:{name}` could not be read: {problem}",
                    _WHAT_TO_CHECK.get(scheme, f"check the plug-in of `{scheme}` and its login"),
                )
            _kept[scheme, name] = value, time.monotonic() + _KEPT_SECONDS
        return value


_WHAT_TO_CHECK = {
    "databricks": "check the scope, the key, and the login of the Databricks SDK, such as"
    " DATABRICKS_HOST and DATABRICKS_TOKEN",
}


def _ask(scheme: str, name: str) -> tuple[str | None, str | None]:
    """Return the secret that a service has, or what went wrong.

    The message of an error may have the secret, so nothing but its type is kept of it.
    """
    read = sources().get(scheme)
    if read is None:
        return None, f"no installed package declares `{scheme}` in `{PLUG_INS}`"
    try:
        found = read(name)
    except (Exception, SystemExit) as error:
        if scheme in _BUILT_IN and isinstance(error, HeadgateError):
            raise
        return None, f"`{scheme}` raised {type(error).__name__}"
    if isinstance(found, str) and found:
        return found, None
    return None, f"`{scheme}` returned no text"
