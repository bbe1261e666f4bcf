"""A small round of a long test in `make test`, and all of it in `make soak`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from types import FunctionType
from typing import Any, TypeVar

import pytest

_Class = TypeVar("_Class", bound=type)


def rounds(small: int, whole: int) -> pytest.MarkDecorator:
    """Give a test the number of its cases."""
    return pytest.mark.parametrize("cases", [small, pytest.param(whole, marks=pytest.mark.soak)])


def some(cases: Iterable[Any], *kept: Any) -> list[Any]:
    """Return the cases of a test, of which `make test` runs only those that are kept."""
    return [case if case in kept else _in_soak(case) for case in cases]


def _in_soak(case: Any) -> Any:
    values = case if isinstance(case, tuple) else (case,)
    return pytest.param(*values, marks=pytest.mark.soak)


def only(*kept: str) -> Callable[[_Class], _Class]:
    """Let `make test` run only some of the tests that a class inherits."""

    def mark(cls: _Class) -> _Class:
        for name in dir(cls):
            if name.startswith("test_") and name not in kept:
                setattr(cls, name, pytest.mark.soak(_copy(getattr(cls, name))))
        assert _are_tests(kept, cls)
        return cls

    return mark


def _are_tests(names: Collection[str], cls: type) -> bool:
    return all(callable(getattr(cls, name, None)) for name in names)


def _copy(function: FunctionType) -> FunctionType:
    """Return a function that can have marks of its own."""
    copied = FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__
    )
    copied.__dict__.update(function.__dict__)
    copied.__annotations__ = function.__annotations__
    return copied
