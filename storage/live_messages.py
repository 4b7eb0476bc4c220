"""The live messages of a shard, by id.

Dicts of its own, since ids are multiples of `SHARDS_MAX` and a shard more: Python hashes an int to itself and takes
its low bits, so of a million such keys 500 begin at one place, and looking one up takes four times as long. What stands
before the shard is the number of a record, and numbers in a row stand in a row.

They stand in pages, by those numbers: a dict that grows is made anew at once, and that of 1,400,000 messages took 50 ms
for it, of 5,600,000 messages 450. A page takes 0.2 ms.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Final

from storage.message import Message
from storage.message_ids import SHARDS_MAX

PAGE_BITS: Final = 14
"""So many bits of a key are its place in a page: 16,384 messages at most."""

STEPS_MAX: Final = 20_000
"""So many keys are looked at in one go: some 2 ms."""

PAGE_STEPS: Final = 20
"""To begin with a page is as much as so many steps."""

LEFT: Final = frozenset({0, 1, 4, 16, 64, 256, 1024, 4096})
"""A page of which no more are left is made anew: Python keeps a dict as large as it ever was, half a megabyte."""

NOWHERE: Final = -(1 << 60)
"""No page has this number."""


class LiveMessages:
    """Messages of `shard`, each at most once; pages in the order in which they were begun, mostly that of records."""

    __slots__ = ("_count", "_index", "_index_of", "_newest", "_newest_number", "_pages", "shard")

    def __init__(self, shard: int) -> None:
        self.shard = shard
        self._pages: dict[int, dict[int, Message]] = {}
        self._newest_number = NOWHERE
        self._newest: dict[int, Message] = {}
        self._count = 0
        self._index_of = NOWHERE
        self._index: list[int] = []

    def _key(self, msg_id: int) -> int:
        """Another one for each id, whatever anybody asks for."""
        if msg_id < 0:
            return 2 * msg_id
        return msg_id // SHARDS_MAX if msg_id % SHARDS_MAX == self.shard else -1 - 2 * msg_id

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[int]:
        return iter([message.msg_id for message in self.values()])

    def __contains__(self, msg_id: object) -> bool:
        return isinstance(msg_id, int) and self.get(msg_id) is not None

    def __getitem__(self, msg_id: int) -> Message:
        message = self.get(msg_id)
        if message is None:
            raise KeyError(msg_id)
        return message

    def get(self, msg_id: int) -> Message | None:
        """Find the message; None if it is not there."""
        key = self._key(msg_id)
        number = key >> PAGE_BITS
        if number == self._newest_number:  # mostly
            return self._newest.get(key)
        page = self._pages.get(number)
        return None if page is None else page.get(key)

    def add(self, msg_id: int, message: Message) -> bool:
        """Take in the message of that id; whether it was not there."""
        key = self._key(msg_id)
        number = key >> PAGE_BITS
        page = self._newest if number == self._newest_number else self._page_for(number)
        if page.setdefault(key, message) is not message:
            return False
        self._count += 1
        if number == self._index_of:
            self._note(key)
        return True

    def _page_for(self, number: int) -> dict[int, Message]:
        """Find that page, or begin it: a later one is the newest then, and the one before takes what it needs."""
        pages = self._pages
        page = pages.get(number)
        if page is None:
            page = pages[number] = {}
        if number > self._newest_number:
            if self._newest_number != NOWHERE:
                if self._newest:
                    pages[self._newest_number] = dict(self._newest)
                else:
                    del pages[self._newest_number]
            self._newest_number, self._newest = number, page
        return page

    def pop(self, msg_id: int) -> Message | None:
        """Take out the message; None if it is not there."""
        key = self._key(msg_id)
        number = key >> PAGE_BITS
        is_newest = number == self._newest_number
        page = self._newest if is_newest else self._pages.get(number)
        message = None if page is None else page.get(key)
        if page is None or message is None:
            return None
        del page[key]
        self._count -= 1
        if not is_newest and (left := len(page)) in LEFT:
            if left:
                self._pages[number] = dict(page)
            else:
                del self._pages[number]
        return message

    def _note(self, key: int) -> None:
        """One more for the index of its page, which goes if it would not be in order any more."""
        index = self._index
        if index and key < index[-1]:
            self._index_of = NOWHERE
        elif not index or key > index[-1]:  # or it stands there: it was gone, and is taken back
            index.append(key)

    def behind(self, trans_id: int, count: int) -> tuple[list[Message], int | None]:
        """Give the next `count` of them behind record `trans_id`, by the records that produced them.

        Fewer, where many are gone that stood there. Also gives the record that was looked at last; None: there is none
        behind it. Of each page the keys are put in order when it is looked at, and kept as long as no other is.
        """
        found: list[Message] = []
        left, last = STEPS_MAX, trans_id
        first = trans_id >> PAGE_BITS
        for number in sorted([one for one in self._pages if one >= first]):
            if left < PAGE_STEPS:
                return found, last
            left -= PAGE_STEPS
            if number != self._index_of:
                self._index_of, self._index = number, sorted(self._pages[number])
            page, index = self._pages[number], self._index
            at = bisect_right(index, trans_id)
            while at < len(index):
                if left <= 0 or len(found) == count:
                    return found, last
                left -= 1
                last = index[at]
                message = page.get(last)
                if message is not None:
                    found.append(message)
                at += 1
        return found, None

    def drop(self, count: int) -> bool:
        """Let go of so many; whether there were any."""
        had_some = self._count > 0
        self._newest_number, self._newest = NOWHERE, {}
        pages = self._pages
        while pages and count > 0:
            number, page = next(reversed(pages.items()))
            for _ in range(min(count, len(page))):
                page.popitem()
                self._count -= 1
                count -= 1
            if not page:
                del pages[number]
                count -= PAGE_STEPS
        return had_some

    def check(self) -> None:
        """Assert that each is counted, and found once by its record; for tests."""
        assert sum(map(len, self._pages.values())) == self._count
        assert all(page or number == self._newest_number for number, page in self._pages.items())
        assert all(key >> PAGE_BITS == number for number, page in self._pages.items() for key in page)
        if self._index_of in self._pages:
            page = self._pages[self._index_of]
            there = [key for key in self._index if key in page]
            assert there == sorted(page)

    def values(self) -> Iterable[Message]:
        """All messages."""
        return chain.from_iterable([page.values() for page in self._pages.values()])
