"""Python's collector of circular garbage, put off while there is none to be had.

It looks at all objects again and again while many are made. With the decoders of hundreds of
schemas in memory, that takes a third of the time of a batch.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def pause_collection() -> Iterator[None]:
    """Reference counting goes on, so memory is given back all the same."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
