from __future__ import annotations

import threading
from pathlib import Path

from headgate.jars.jars import hold_lock


def test_second_holder_waits_and_says_so(tmp_path: Path) -> None:
    lock = tmp_path / "new folder" / "it.lock"
    waits, order = threading.Event(), []

    def second() -> None:
        with hold_lock(lock, on_wait=waits.set):
            order.append("second")

    other = threading.Thread(target=second)
    with hold_lock(lock):
        other.start()
        assert waits.wait(timeout=30)
        order.append("first")
    other.join(timeout=30)
    assert order == ["first", "second"]


def test_free_lock_is_had_at_once(tmp_path: Path) -> None:
    waited = []
    for _ in range(2):
        with hold_lock(tmp_path / "it.lock", on_wait=lambda: waited.append(True)):
            pass
    assert waited == []
