"""A folder of its own: Python puts the folder of a program in front of all packages."""

from __future__ import annotations
