"""Which messages of a topic a group reads: those whose attribute its filter accepts, if it has one.

A filter is a list of attributes; one that ends with `*` stands for all that begin so. A message without an attribute is
accepted by no filter. There are no regular expressions: nothing bounds the time that they take.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from storage.blocks import Kept, frame_bytes
from storage.tails import TopicState

ANY: Final = "*"
LOOKED_MAX: Final = 1000
"""So many messages in memory are looked at for one read; a millisecond's work."""

LOOKED_IN_BLOCKS: Final = 200
"""The same of those that are read from the disk: for a run of one message all of them are."""

LOOK_BYTES: Final = 400
"""A message that is looked at costs a turn as much as sending so many bytes."""


class Filter:
    """Made of a list of attributes."""

    def __init__(self, attributes: Iterable[str]) -> None:
        every = [*attributes]
        self._whole = frozenset(one for one in every if not one.endswith(ANY))
        self._begin = tuple(one.removesuffix(ANY) for one in every if one.endswith(ANY))

    def accepts(self, attribute: str | None) -> bool:
        """Whether it accepts a message with that attribute."""
        return attribute is not None and (attribute in self._whole or attribute.startswith(self._begin))


class Looked(NamedTuple):
    """What a look at messages gave: those that are accepted, and where the next look begins. `looked`: at so
    many."""

    accepted: list[Kept]
    offset: int
    position: int
    looked: int


def filter_of(topic: TopicState, group: str | None) -> Filter | None:
    """Give the filter of a group; None: it has none."""
    attributes = None if group is None else topic.settings.filters.get(group)
    return None if attributes is None else Filter(attributes)


def look(kept: Iterable[Kept], its: Filter, at: tuple[int, int], bytes_max: int, *, unbroken: bool) -> Looked:
    """Look at messages that follow each other, about `bytes_max` at most.

    `at`: the offset and position of the first. `unbroken`: only of those that are accepted up to the first that is not,
    or of those that are not up to the first that is.
    """
    accepted: list[Kept] = []
    offset, position = at
    size = looked = 0
    for one in kept:
        its_bytes = frame_bytes(one.data, one.attribute)
        if looked and (size + its_bytes > bytes_max or looked >= LOOKED_MAX):
            break
        is_accepted = its.accepts(one.attribute)
        if unbroken and looked and is_accepted != bool(accepted):
            break
        if is_accepted:
            accepted.append(one)
        size += its_bytes
        looked += 1  # not of the message at which it stops
        offset, position = one.offset + 1, one.position + its_bytes
    return Looked(accepted, offset, position, looked)
