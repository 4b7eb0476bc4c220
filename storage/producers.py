"""Producers: who numbers its appends to a topic, so that one that comes again is known. A part of `storage.topics`."""

from collections import OrderedDict
from typing import Final, NamedTuple

from storage.records import Append
from storage.topic_keys import producer_key
from storage.undo import Undo

SERIALS_KEPT: Final = 16
"""So many numbers of a producer are known, the last ones."""

RUNS_MAX: Final = 1024
"""What they got is known of at most so many partitions in all."""

PRODUCERS_MAX: Final = 10_000
PRODUCER_S: Final = 7 * 86_400.0
"""A producer that has appended nothing for so long is forgotten."""


class Run(NamedTuple):
    """Messages that one append got into one partition: `length` from `offset` on."""

    partition: int
    offset: int
    length: int


class Seen(NamedTuple):
    """What is known of a producer's appends to one topic: the last numbers, each with what it got. `at`: the last was
    then (Unix seconds)."""

    at: float
    serials: tuple[tuple[int, tuple[Run, ...]], ...]


class Producers:
    """Of all topics of a shard, by the topic's number and their names; those that have appended last are last.

    `forgotten`: keys of rows that are not there any more, though no record says so.
    """

    def __init__(self) -> None:
        self.known: OrderedDict[tuple[int, str], Seen] = OrderedDict()
        self.forgotten: set[bytes] = set()

    def note(self, undo: Undo, trans_id: int, record: Append, producer: str) -> None:
        """Note an append. Producers that are too old, or too many, are forgotten."""
        at = (record.number, producer)
        seen = self.known.get(at)
        if undo.is_on:
            undo.then(trans_id, lambda: self._restore(at, seen))
        self.known[at] = _with(seen, record)
        self.known.move_to_end(at)
        while len(self.known) > PRODUCERS_MAX or self._is_old(record.produced_at):
            self._forget(undo, trans_id, next(iter(self.known)))

    def _is_old(self, now: float) -> bool:
        return next(iter(self.known.values())).at < now - PRODUCER_S

    def _forget(self, undo: Undo, trans_id: int, at: tuple[int, str]) -> None:
        seen = self.known.pop(at)
        self.forgotten.add(producer_key(*at))
        undo.then(trans_id, lambda: self._restore(at, seen))

    def _restore(self, at: tuple[int, str], seen: Seen | None) -> None:
        if seen is None:
            self.known.pop(at, None)
        else:
            self.known[at] = seen
            self.forgotten.discard(producer_key(*at))

    def drop_of(self, undo: Undo, trans_id: int, number: int) -> None:
        """Forget those of a topic that is gone."""
        for at in [at for at in self.known if at[0] == number]:
            self._forget(undo, trans_id, at)

    def take_forgotten(self) -> set[bytes]:
        """Hand over the keys of rows that no record names any more."""
        taken, self.forgotten = self.forgotten, set()
        return taken


def _with(seen: Seen | None, record: Append) -> Seen:
    """Note one append more of a producer."""
    run = Run(record.partition, record.offset, 1)
    serials = () if seen is None else seen.serials
    if not serials or serials[-1][0] < record.serial:
        serials = (*serials, (record.serial, (run,)))[-SERIALS_KEPT:]
    elif serials[-1][0] == record.serial:
        runs = serials[-1][1]
        for at, one in enumerate(runs):
            if one.partition == record.partition:
                if record.offset < one.offset + one.length:
                    return Seen(record.produced_at, serials)  # in a replay
                longer = Run(one.partition, one.offset, one.length + 1)
                runs = (*runs[:at], longer, *runs[at + 1 :])
                break
        else:
            runs = (*runs, run)
        serials = (*serials[:-1], (record.serial, runs))
    while len(serials) > 1 and sum([len(runs) for _, runs in serials]) > RUNS_MAX:
        serials = serials[1:]
    return Seen(record.produced_at, serials)


def runs_of(seen: Seen | None, serial: int) -> tuple[Run, ...] | None:
    """Give what the append with that number got; None: it is new, or not known any more."""
    for number, runs in () if seen is None else seen.serials:
        if number == serial:
            return runs
    return None


def last_serial(seen: Seen | None) -> int:
    """Give a producer's greatest number; 0: it has none."""
    return 0 if seen is None or not seen.serials else seen.serials[-1][0]
