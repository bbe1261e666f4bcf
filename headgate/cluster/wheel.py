"""The wheel: Headgate as one file, for clusters that install packages themselves.

It has the modules that this process runs, so that building it needs neither a source tree nor a
build tool, and its bytes are the same for the same modules.
"""

from __future__ import annotations

import base64
import hashlib
import re
import zipfile
from collections.abc import Collection, Mapping
from importlib.metadata import Distribution, distribution
from pathlib import Path

from headgate.cluster.pack import OF_THE_CLUSTER, required_packages
from headgate.errors import SetupError

_PACKAGE = Path(__file__).parents[1]
_OWN = "headgate"
_BEGINNING_OF_TIME = (1980, 1, 1, 0, 0, 0)
"""The earliest time that a zip file can have."""
_WHEEL = "Wheel-Version: 1.0\nGenerator: headgate\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def build_wheel(folder: Path) -> Path:
    """Write the wheel to a folder, and return its path.

    It does not require PySpark: a cluster has its own, often of another version, which an
    installation must not replace.
    """
    package = distribution(_OWN)
    info = f"{_OWN}-{package.version}.dist-info"
    files = _modules() | {f"{info}/{name}": text.encode() for name, text in _info(package).items()}
    path = folder / f"{_OWN}-{package.version}-py3-none-any.whl"
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        for name, content in sorted(files.items()):
            wheel.writestr(_entry(name), content)
        wheel.writestr(_entry(f"{info}/RECORD"), _record(files, f"{info}/RECORD"))
    return path


def pinned_requirements(extras: Collection[str] = ()) -> list[str]:
    """Return the packages that Headgate requires, each with the version that is installed here."""
    packages = required_packages(extras)
    return sorted(f"{name}=={one.version}" for name, one in packages.items() if name != _OWN)


def _modules() -> dict[str, bytes]:
    return {
        path.relative_to(_PACKAGE.parent).as_posix(): path.read_bytes()
        for path in _PACKAGE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def _info(package: Distribution) -> dict[str, str]:
    kept = {name: package.read_text(name) for name in ("entry_points.txt", "licenses/LICENSE")}
    return {
        "METADATA": _metadata(package),
        "WHEEL": _WHEEL,
        **{name: text for name, text in kept.items() if text is not None},
    }


def _metadata(package: Distribution) -> str:
    written = package.read_text("METADATA")
    if written is None:
        message = "the metadata of the package headgate is missing"
        raise SetupError("pack-failed", message, "give a wheel of headgate with --wheel")
    of_the_cluster = "|".join(sorted(OF_THE_CLUSTER))
    return re.sub(rf"(?m)^Requires-Dist: (?:{of_the_cluster})\b.*\n", "", written)


def _entry(name: str) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name, _BEGINNING_OF_TIME)
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = 0o644 << 16
    return entry


def _record(files: Mapping[str, bytes], own: str) -> str:
    def digest(content: bytes) -> str:
        return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()

    lines = [
        f"{name},sha256={digest(content)},{len(content)}" for name, content in sorted(files.items())
    ]
    return "\n".join([*lines, f"{own},,", ""])
