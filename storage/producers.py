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

RUNS_OF_SHARD_MAX: Final = 200_000
"""And of all producers of a shard together, some 40 MB."""

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

    `forgotten`: keys of rows that are not there any more, though no record says so. `runs`: so many are known of all.
    Which producers are forgotten follows from their appends alone, also where some of those were undone: so every node
    knows the same ones.
    """

    def __init__(self) -> None:
        self.known: OrderedDict[tuple[int, str], Seen] = OrderedDict()
        self.forgotten: set[bytes] = set()
        self.runs = 0
        self._is_in_order = True

    def put(self, at: tuple[int, str], seen: Seen) -> None:
        """Know that of a producer, as the one that has appended last."""
        self._take(at)
        self.known[at] = seen
        self.runs += _runs_in(seen)

    def _take(self, at: tuple[int, str]) -> Seen | None:
        seen = self.known.pop(at, None)
        if seen is not None:
            self.runs -= _runs_in(seen)
        return seen

    def note(self, undo: Undo, trans_id: int, record: Append, producer: str) -> None:
        """Note an append. Producers that are too old, or too many, are forgotten."""
        at = (record.number, producer)
        seen = self.known.get(at)
        if undo.is_on:
            undo.then(trans_id, lambda: self._restore(at, seen))
        self.put(at, _with(seen, record))
        while len(self.known) > 1 and self._has_to_forget(record.produced_at):
            self._forget(undo, trans_id, self._oldest(at))

    def _has_to_forget(self, now: float) -> bool:
        if not self._is_in_order:
            self.known = OrderedDict(sorted(self.known.items(), key=lambda one: one[1].at))
            self._is_in_order = True
        is_old = next(iter(self.known.values())).at < now - PRODUCER_S
        return is_old or len(self.known) > PRODUCERS_MAX or self.runs > RUNS_OF_SHARD_MAX

    def _oldest(self, but: tuple[int, str]) -> tuple[int, str]:
        """Give who has appended nothing for longest, of several the first by name; but for one."""
        oldest: list[tuple[int, str]] = []
        since: float | None = None
        for at, seen in self.known.items():
            if since is not None and seen.at != since:
                break
            if at != but:
                since = seen.at
                oldest.append(at)
        return min(oldest)

    def _forget(self, undo: Undo, trans_id: int, at: tuple[int, str]) -> None:
        seen = self._take(at)
        self.forgotten.add(producer_key(*at))
        undo.then(trans_id, lambda: self._restore(at, seen))

    def _restore(self, at: tuple[int, str], seen: Seen | None) -> None:
        if seen is None:
            self._take(at)
        else:
            self.put(at, seen)
            self._is_in_order = False
            self.forgotten.discard(producer_key(*at))

    def drop_of(self, undo: Undo, trans_id: int, number: int) -> None:
        """Forget those of a topic that is gone."""
        for at in [at for at in self.known if at[0] == number]:
            self._forget(undo, trans_id, at)

    def take_forgotten(self) -> set[bytes]:
        """Hand over the keys of rows that no record names any more."""
        taken, self.forgotten = self.forgotten, set()
        return taken


def _runs_in(seen: Seen) -> int:
    return sum([len(runs) for _, runs in seen.serials])


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
