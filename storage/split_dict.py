"""A dict by text that never grows at once.

Python makes a dict anew when it is full, and everybody waits for that: 50 ms for 1,400,000 keys, 450 for 5,600,000. So
one that becomes large is split into pages, by the keys' hashes; each of them grows by itself, at a time of its own.
"""

from collections.abc import Iterator
from itertools import chain
from typing import Final, Generic, TypeVar

V = TypeVar("V")

PAGES: Final = 256
HIGH_BITS: Final = 40
"""A page goes by the bits of the hash from this on: by the lowest its own dict places a key."""

SPLIT_AT: Final = 20_000
"""With so many keys it is split, which takes 3 ms, once."""


class SplitDict(Generic[V]):
    """What is there, by its key."""

    __slots__ = ("_pages", "_whole")

    def __init__(self) -> None:
        self._whole: dict[str, V] = {}
        self._pages: list[dict[str, V]] = []

    def _page(self, key: str) -> dict[str, V]:
        return self._pages[_page_number(key)] if self._pages else self._whole

    def __len__(self) -> int:
        return sum([len(page) for page in self._all])

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and key in self._page(key)

    def get(self, key: str) -> V | None:
        """Find what has that key; None if nothing has."""
        return self._page(key).get(key)

    def __setitem__(self, key: str, value: V) -> None:
        self._page(key)[key] = value
        if len(self._whole) > SPLIT_AT:
            self._split()

    def __delitem__(self, key: str) -> None:
        del self._page(key)[key]

    def _split(self) -> None:
        pages: list[dict[str, V]] = [{} for _ in range(PAGES)]
        for key, value in self._whole.items():
            pages[_page_number(key)][key] = value
        self._whole, self._pages = {}, pages

    @property
    def _all(self) -> list[dict[str, V]]:
        return self._pages or [self._whole]

    def items(self) -> Iterator[tuple[str, V]]:
        """Keys, and what has them."""
        return chain.from_iterable([page.items() for page in self._all])

    def drop(self, count: int) -> bool:
        """Let go of so many; whether there were as many."""
        is_long = len(self) >= count
        for page in self._all:
            while page and count > 0:
                page.popitem()
                count -= 1
        return is_long


def _page_number(key: str) -> int:
    return (hash(key) >> HIGH_BITS) % PAGES
