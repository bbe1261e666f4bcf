"""Spark on other machines: the packages that executors need, and the folders they must see."""

from __future__ import annotations
