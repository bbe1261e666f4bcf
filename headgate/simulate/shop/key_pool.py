"""The keys that a table has now, to pick one from."""

from __future__ import annotations

from random import Random
from typing import Generic, TypeVar

Key = TypeVar("Key", int, str)


class KeyPool(Generic[Key]):
    """Picking and removing take the same time however many there are."""

    def __init__(self) -> None:
        self._keys: list[Key] = []
        self._places: dict[Key, int] = {}

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, key: Key) -> bool:
        return key in self._places

    def add(self, key: Key) -> None:
        self._places[key] = len(self._keys)
        self._keys.append(key)

    def remove(self, key: Key) -> None:
        last = self._keys.pop()
        place = self._places.pop(key)
        if last != key:
            self._keys[place] = last
            self._places[last] = place

    def pick(self, random: Random) -> Key:
        return self._keys[random.randrange(len(self._keys))]
