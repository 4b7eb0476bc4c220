"""What stretches of the log are about, remembered as they are written, so that the head goes without being read again.

A stretch is some thousands of records, whole entries. When it goes, LMDB has to have, of every message that one of its
records is about, what that is by then; the rest of the log, replayed over it, ends in the same state as before:

- a message that it produced and that still lives gets a row in the backlog. Whether it lives is asked when the stretch
  is full, too: most are gone by then, and nobody need think of them any more.
- a message of an earlier stretch may have a row there: it gets a new one, or, if it is gone, has none any more. Each
  record says which was the message's record before (`previous`); so the first in this stretch is known by that alone.
- a queue that got a message, was configured or removed gets a row, or has none any more.
- what a record says of a topic changes some rows (`storage.topics`), which are described anew; and what was appended to
  topics is in blocks by then.

Invariant, which the second rule rests on: the backlog has no row of a message that was produced behind the record up to
which the log is trimmed. So stretches end where entries do, and a trim ends where a stretch does.
"""

from array import array
from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from typing import Final

from storage.entry_making import appended_bytes
from storage.kinds import KINDS, messages_of
from storage.live_messages import LiveMessages
from storage.message import Made, Message, weight
from storage.message_ids import produced_by
from storage.queue_state import QueueState
from storage.records import (
    Append,
    Confirm,
    Decide,
    Deliver,
    DropGroup,
    DropTopic,
    Offsets,
    OfPrepared,
    OfTopic,
    Prepare,
    Produce,
    Record,
    Retire,
    Topic,
)
from storage.topic_keys import keys_of

STRETCH_RECORDS: Final = 5000
"""What goes at once: to describe it costs the owner's loop a few ms at worst, in pieces."""

STRETCH_IDS: Final = 10_000
"""Of messages that its records name, which may be a thousand each: so many, and one entry's more."""

STRETCH_BYTES: Final = 8 << 20
"""Of data that stand in it, and of older messages that its records are about: so much, and one entry's more."""

NO_NAME: Final = ""

_Message: Final = Message
_Produce: Final = Produce
_Deliver: Final = Deliver
_Confirm: Final = Confirm
_Append: Final = Append
OF_TOPICS: Final = (Append, Topic, Retire, DropTopic, Offsets, DropGroup, Prepare, Decide)

_QUEUE_ROWS: Final = {kind.record: kind.rows.queues for kind in KINDS}


class Stretch:
    """The records behind `start` up to `until`, the last of them made by the leader of `vote_id`.

    `produced`: those of its messages that lived when it was full. `touched`: messages of earlier stretches. `queues`:
    those whose rows may be others by it. `topics`: those with messages in it, `rows`: the keys of rows of topics.
    """

    __slots__ = ("produced", "queues", "rows", "start", "topics", "touched", "until", "vote_id")

    def __init__(
        self,
        start: int,
        until: int,
        vote_id: int,
        produced: Sequence[int],
        touched: Sequence[int],
        queues: list[str],
        *,
        topics: Sequence[str] = (),
        rows: Sequence[bytes] = (),
    ) -> None:
        self.topics = topics
        self.rows = rows
        self.start = start
        self.until = until
        self.vote_id = vote_id
        self.produced = produced
        self.touched = touched
        self.queues = queues


class Stretches:
    """Of a log that begins behind record `start`; `noted` is the end of the last entry that it was told of.

    `live` and `queues` are those of the state that the log describes.
    """

    def __init__(self, live: LiveMessages, queues: dict[str, QueueState], records_max: int = STRETCH_RECORDS) -> None:
        self.records_max = records_max
        self._live = live
        self._known = queues
        self.start = 0
        self.noted = 0
        self._full: deque[Stretch] = deque()
        self._open_start = 0
        self._produced: list[int] = []
        self._touched: list[int] = []
        self._queues: dict[str, None] = {}
        self._topics: dict[str, None] = {}
        self._rows: dict[bytes, None] = {}
        self._bytes = 0
        self._last_name = NO_NAME

    def begin(self, trimmed: int) -> None:
        """Nothing has been noted yet, of a log that begins behind that record."""
        assert not self._full, "a log begins once"
        self.start = self.noted = self._open_start = trimmed

    def note(self, vote_id: int, until: int, records: Sequence[Made | Record]) -> None:
        """Note that an entry which ends with record `until` is in the log, and will be trimmed one day. The state has
        it."""
        start = self._open_start
        produced = self._produced
        for record in records:
            kind = type(record)
            if kind is _Message or kind is _Produce:
                assert isinstance(record, Message) or isinstance(record, Produce)  # noqa: SIM101  # a tuple is made each time
                produced.append(record.msg_id)
                self._bytes += weight(record)
                name = record.queue
                if name != self._last_name:
                    self._last_name = name
                    self._note_queue(name)
            elif kind is _Deliver or kind is _Confirm:
                assert isinstance(record, Deliver) or isinstance(record, Confirm)  # noqa: SIM101
                previous = record.previous
                if len(previous) == 1:
                    if previous[0] <= start:
                        self._touch(record.msg_ids[0])
                else:
                    self._touch_those(record.msg_ids, previous)
            else:
                assert not isinstance(record, (Message, Produce))
                self._note_rare(record)
        self.noted = until
        is_full = until - start >= self.records_max or self._bytes >= STRETCH_BYTES
        if is_full or len(produced) + len(self._touched) >= STRETCH_IDS:
            self._close(vote_id)

    def _note_rare(self, record: Record) -> None:
        if isinstance(record, OF_TOPICS):
            self._note_topic(record)
            return
        for field in _QUEUE_ROWS[type(record)]:
            self._note_queue(getattr(record, field))
        msg_ids, previous = messages_of(record)
        self._touch_those(msg_ids, previous)

    def _note_topic(self, record: OfTopic | OfPrepared) -> None:
        if type(record) is _Append:
            self._bytes += appended_bytes(record)
            if record.producer is None and record.queue in self._topics:
                return  # nearly always
            self._topics[record.queue] = None
        elif isinstance(record, Prepare):
            self._bytes += record.data_bytes
        for key in keys_of(record):
            self._rows[key] = None

    def _note_queue(self, name: str) -> None:
        queue = self._known.get(name)
        self._queues[name if queue is None else queue.name] = None  # one string for all stretches

    def _touch_those(self, msg_ids: list[int], previous: list[int]) -> None:
        start = self._open_start
        for index, before in enumerate(previous):
            if before <= start:
                self._touch(msg_ids[index])

    def _touch(self, msg_id: int) -> None:
        self._touched.append(msg_id)
        message = self._live.get(msg_id)
        if message is not None:
            self._bytes += weight(message)

    def _close(self, vote_id: int) -> None:
        """Close the open stretch, which is full: the next begins behind it."""
        live = self._live
        produced = array("q", [msg_id for msg_id in self._produced if live.get(msg_id) is not None])
        touched = array("q", self._touched)
        self._full.append(
            Stretch(
                self._open_start,
                self.noted,
                vote_id,
                produced,
                touched,
                [*self._queues],
                topics=[*self._topics],
                rows=[*self._rows],
            )
        )
        self._open_start = self.noted
        self._produced = []
        self._touched = []
        self._queues = {}
        self._topics = {}
        self._rows = {}
        self._bytes = 0
        self._last_name = NO_NAME

    def cut(self, after: int) -> None:
        """End the log behind record `after`; those that come back by that are to be told by `revive`.

        A full stretch that went beyond is open again. What it is about may be more than what is left of it: a row too
        many is right as well. Too few are not; nor is one that is not there any more, whose number another gets.
        """
        full = self._full
        while full and full[-1].until > after:
            last = full.pop()
            self._produced = [*last.produced, *self._produced]
            self._touched = [*last.touched, *self._touched]
            self._queues = dict.fromkeys((*last.queues, *self._queues))
            self._topics = dict.fromkeys((*last.topics, *self._topics))
            self._rows = dict.fromkeys((*last.rows, *self._rows))
            self._open_start = last.start
        self._produced = sorted({msg_id for msg_id in self._produced if produced_by(msg_id) <= after})
        self._touched = [msg_id for msg_id in self._touched if produced_by(msg_id) <= after]
        self.noted = after
        self._last_name = NO_NAME

    def revive(self, msg_ids: Sequence[int]) -> None:
        """Those live that records had changed or removed that are cut off: of a message that was gone when its stretch
        was full nobody thinks."""
        full = self._full
        more: dict[int, set[int]] = {}
        ends = [stretch.until for stretch in full]
        here: list[int] = []
        for msg_id in msg_ids:
            trans_id = produced_by(msg_id)
            if self._open_start < trans_id:
                here.append(msg_id)
            elif self.start < trans_id:
                more.setdefault(bisect_left(ends, trans_id), set()).add(msg_id)
        if here:
            self._produced = sorted({*self._produced, *here})
        for at, some in more.items():
            there = full[at].produced  # in order; nearly always they are still there
            missing = [one for one in some if not _holds(there, one)]
            if missing:
                full[at].produced = array("q", sorted([*there, *missing]))

    def first(self, until: int) -> Stretch | None:
        """Give the log's head, if it ends at or before record `until`."""
        full = self._full
        return full[0] if full and full[0].until <= until else None

    def drop_trimmed(self, upto: int) -> bool:
        """Drop what was noted before that record: the log begins behind it now. False if it was noted of another
        log."""
        full = self._full
        while full and full[0].until <= upto:
            full.popleft()
        self.start = full[0].start if full else self._open_start
        return self.start == upto


def _holds(in_order: Sequence[int], one: int) -> bool:
    at = bisect_left(in_order, one)
    return at < len(in_order) and in_order[at] == one
