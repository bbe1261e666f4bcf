"""What a secret looks like: names of settings that have one, and texts that contain one."""

from __future__ import annotations

import re
from collections.abc import Iterable

SECRET_NAMES = "|".join(
    (
        r"pass(?:word|wd|phrase|code)",
        r"secret|token|credential|jaas|authorization",
        r"(?:access|account|shared|storage|api|signing|private|provided|encryption)[._-]?key",
        r"keystore[._-]?key|basic[._-]?auth|user[._-]?info|connection[._-]?string",
        r"[._-]sas(?:[._-]|$)",
    )
)
"""A regular expression, for Python and Java, of words in the names of settings with secrets."""
_SECRET_NAME = re.compile(SECRET_NAMES, re.IGNORECASE)

_HARMLESS_NAME = re.compile(
    # The last word says that the value is about a secret, not the secret itself.
    r"(?:[._-]|(?<=[a-z]))(?:enabled|file|location|path|provider|type|source|mechanism|class"
    r"|binding|algorithm|regex|length)$"
    r"|key(?:provider|size\w*)(?:[._-]|$)"
    r"|^spark[.](?:security[.]credentials|kerberos)[.]"
    r"|^spark[.]kubernetes[.]\w+[.]secret(?:s|keyref)[.]"
    r"|^spark[.]ssl[.](?:\w+[.])?privatekey$"
    r"|[.]token[.](?:fetch|server)[.]|[.]provider[.]type[.]"
    r"|[.]key[.]material[.]",
    re.IGNORECASE,
)

_ASSIGNED = re.compile(
    r"(?:pass(?:word|wd|phrase)|pwd|secret|token|(?:access|account|api)[_-]?key"
    r"|shared(?:access)?(?:key|signature)|[?&;]sig(?:nature)?)[^\s=&;]*\s*=",
    re.IGNORECASE,
)
_KNOWN_FORMS = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY"
    r"|\"private_key\"\s*:"
    r"|\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"  # AWS
    r"|\bAIza[\w-]{35}"  # Google
    r"|\beyJ[\w-]{8,}\.eyJ[\w-]{8,}\."  # JSON Web Token
    r"|\bgh[pousr]_\w{30}|\bdapi[0-9a-f]{32}"  # GitHub, Databricks
    r"|(?<![\w+/])[A-Za-z0-9+/]{86}==(?![\w+/])"  # key of an Azure account
    r"|\b(?i:bearer|basic) [\w+/.~-]{16,}"
)


def is_secret_name(name: str) -> bool:
    """Whether the value of a setting is a secret."""
    return bool(_SECRET_NAME.search(name)) and not _HARMLESS_NAME.search(name)


def contains_secret(text: str) -> bool:
    """Whether a text has a secret of a known form, such as `password=…` or a private key."""
    return bool(_ASSIGNED.search(text) or _KNOWN_FORMS.search(text))


def redaction(names: Iterable[str], also: str | None = None) -> str:
    """Return the regular expression of settings that Spark must not show.

    It matches names that look like those of secrets, the given ones, and what `also` matches.
    Hadoop shows its settings without the prefix that they have for Spark.
    """
    given = [re.escape(name.removeprefix("spark.hadoop.")) for name in names]
    parts = [f"(?i:{'|'.join((SECRET_NAMES, *given))})", *([f"(?:{also})"] if also else [])]
    return "|".join(parts)
