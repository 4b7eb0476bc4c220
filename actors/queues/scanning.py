"""Looking at all queues or messages of a shard: some at a time, and others have their turn. Machines of `Queries`.

`Scanning`: scans, and what is due next. Who scans a million messages asks thousands of times for the next few, as
soon as it has those before. So each such request waits for the next turn of its host: whoever else has come meanwhile
goes first.

`Soonest`: the messages whose time comes first, of all queues, for who shows what a node is about to do. `Summing`:
what all queues have together. Whoever asks for it every few seconds makes the rates of each queue known by that, too:
nothing else is counted for it.
"""

from collections.abc import Callable, Iterator
from heapq import heappush, heappushpop
from itertools import islice
from typing import Any, Final

from actors.messages.call import Call
from actors.queues.delivery import REPLY_OVERHEAD_BYTES
from actors.queues.message_replies import state_of, view_of
from actors.runtime.work import Steps
from actors.shard.jobs import CallJob, Jobs
from actors.shard.ledger import Ledger
from actors.shard.machine import ShardContext
from quorate.actions import Right
from quorate.protocol import MessageView, Reply, ScanReply, done
from storage.message import Message, weight
from storage.message_ids import SHARDS_MAX
from storage.name_buckets import BUCKETS
from storage.queue_state import NEVER, QueueState
from storage.records import Place
from storage.state import ShardState

SOONEST_NAMES: Final = 200
"""Queues that one piece looks at: some 1 ms, where each has some that are soon."""

SOONEST_LOOKED: Final = 5000
"""Messages that one piece looks at: some 1.5 ms."""

SOONEST_LOOKED_MAX: Final = 200_000
"""Of a queue: what stands behind so many that expire while they are ready, or may not come in, is not found."""

PLACES: Final = {"delayed": Place.DELAYED, "in_flight": Place.IN_FLIGHT}


SUMMED_AT_ONCE: Final = 500
"""Queues that one piece looks at: some 0.5 ms, and 4 where each of them has sixteen priorities."""

PRIORITIES_LOOKED_AT: Final = 16

RATES_S: Final = 60.0
"""What came and left since somebody looked longer ago than that is no rate of now."""

FRESH_S: Final = 1.0
"""Sums are given again to whoever asks within that time: nobody makes the node count for each of his requests."""

SCAN_DEFAULT: Final = 100

SCAN_MAX: Final = 2000
"""Messages that one piece looks at for those that are meant: some 0.3 ms."""

SCAN_PIECE: Final = 100
"""So many at most of all, or names, and those that share the last one's bucket: some 0.5 ms, which others wait."""

SOONEST_MAX: Final = 200
"""So many messages a reply tells at most of those that are due next."""


class _Search:
    """For one call: the `best` so far, the latest of them first (a heap of negated times and ids).

    `seen`: up to this queue all are looked at, of itself what stands up to `key`, if there is one: `looked` messages.
    """

    def __init__(self, call: Call, place: int, count: int) -> None:
        self.call = call
        self.place = place
        self.count = count
        self.seen = ""
        self.key: tuple[float, int] | None = None
        self.looked = 0
        self.best: list[tuple[float, int]] = []


class Soonest:
    """`done` is called with each call and its messages, in the order of their times."""

    def __init__(self, state: ShardState, done: Callable[[Call, list[Message]], None]) -> None:
        self._state = state
        self._done = done

    def look(self, call: Call, place: int, count: int) -> Steps:
        """Look for the first `count` in that place, at some queues in each piece, and answer."""
        search = _Search(call, place, count)
        while not call.client.is_gone and not self._look_on(search):
            yield
        live, rights = self._state.messages, call.principal.rights
        found = [live.get(-msg_id) for _, msg_id in sorted(search.best, reverse=True)]
        there = [one for one in found if one is not None and one.place == place]  # some have moved, or been delivered
        self._done(call, [message for message in there if rights.may(Right.LOOK, message.queue)])

    def _look_on(self, search: _Search) -> bool:
        """Look at some more queues; whether those were the last."""
        names, rights = self._state.names, search.call.principal.rights
        at = names.bisect_right(search.seen) if search.key is None else names.bisect_left(search.seen)
        room, some = SOONEST_LOOKED, list(names.islice(at, at + SOONEST_NAMES))
        for name in some:
            if search.key is not None and name != search.seen:  # the queue that it stopped in is gone
                search.key = None
            search.seen = name
            if rights.may(Right.LOOK, name):
                room -= self._look(search, self._state.queues[name], room)
            if room <= 0:
                return False
        return len(some) < SOONEST_NAMES

    def _look(self, search: _Search, queue: QueueState, room: int) -> int:
        """Look at up to `room` of the queue's messages; how many there were. `key` tells where to go on."""
        place, best, count, live = search.place, search.best, search.count, self._state.messages
        begun, search.key = search.key, None
        if begun is None:
            search.looked = 0
        if not (queue.delayed if place == Place.DELAYED else queue.in_flight):
            return 0
        looked, order = 0, queue.order_of(place)
        if begun is None and len(best) >= count and order.first[0] >= -best[0][0]:
            return 0  # nothing here is sooner than the latest of them, which is known from one look
        for due_at, msg_id in islice(order if begun is None else order.behind(begun), room):
            if len(best) >= count and due_at >= -best[0][0]:
                return looked
            looked += 1
            if live[msg_id].place == place:
                if len(best) < count:
                    heappush(best, (-due_at, -msg_id))
                else:
                    heappushpop(best, (-due_at, -msg_id))
        search.looked += looked
        if looked == room and search.looked < SOONEST_LOOKED_MAX:
            search.key = (due_at, msg_id)
        return looked


def oldest_ready(queue: QueueState) -> float | None:
    """Since when the message is ready that is so for longest: the first of each priority is looked at, 16 of them."""
    ready, oldest = queue.ready, None
    key = ready.first if ready else None
    for _ in range(PRIORITIES_LOOKED_AT):
        if key is None:
            break
        oldest = key[1] if oldest is None else min(oldest, key[1])
        key = ready.first_behind((key[0], NEVER, 0))
    return oldest


class Sums:
    """Messages by state, the oldest that is ready (Unix s), those in dead letter queues; `at`: when (Unix s).

    Nobody is expected to take what is in a queue for dead letters, or in a paused one: these make none the oldest.
    `dead` are the queues for dead letters that are known, `dead_letter_queues` those that are found.
    """

    def __init__(self, dead: set[str]) -> None:
        self.dead = dead
        self.ready = self.delayed = self.in_flight = self.dead_letters = 0
        self.oldest: float | None = None
        self.at = 0.0
        self.dead_letter_queues: set[str] = set()

    def add(self, queue: QueueState) -> None:
        """One queue more."""
        self.ready += len(queue.ready)
        self.delayed += queue.delayed
        self.in_flight += queue.in_flight
        self.find_dead(queue)
        if queue.name in self.dead:
            self.dead_letters += queue.size
            return
        since = None if queue.paused else oldest_ready(queue)
        if since is not None and (self.oldest is None or since < self.oldest):
            self.oldest = since

    def find_dead(self, queue: QueueState) -> None:
        """Note which queue is for its dead letters, if one is."""
        if queue.dead_letter is not None:
            self.dead_letter_queues.add(queue.dead_letter)

    @property
    def told(self) -> dict[str, Any]:
        """As a reply has it."""
        states = {"ready": self.ready, "delayed": self.delayed, "in_flight": self.in_flight}
        return {"messages": states, "oldest": self.oldest, "dead_letters": self.dead_letters}


class Summing:
    """`done` is called with each call and the sums that it asked for."""

    def __init__(self, ledger: Ledger, jobs: Jobs, done: Callable[[Call, Sums], None]) -> None:
        self._ledger = ledger
        self._jobs = jobs
        self._done = done
        self._looked_at = self._seconds = self._last_seconds = 0.0
        self._last = Sums(set())
        self._job: CallJob | None = None

    def ask(self, call: Call) -> None:
        """Answer at once from sums that are fresh, or when they are made: for all at once that wait by then."""
        now = self._ledger.now
        if self._job is not None and self._job.calls:
            self._job.calls.append(call)
        elif 0 <= now - self._last.at < FRESH_S:
            self._done(call, self._last)
        else:
            seconds = now - self._looked_at
            self._looked_at, self._seconds = now, seconds if 0 < seconds < RATES_S else 0.0
            calls = [call]
            self._job = self._jobs.begin_for(calls, self._sum(calls))

    def has_rates(self, now: float) -> bool:
        """Whether each queue's `came` and `left` are of now."""
        return self._last_seconds > 0 and now - self._looked_at < RATES_S

    def _sum(self, calls: list[Call]) -> Steps:
        """Look at all queues, at some of them in each piece, and answer."""
        sums, counting, queues = Sums(self._last.dead_letter_queues), self._ledger.counting, self._ledger.state.queues
        if self._last.at == 0.0:  # before the first time: later it is known from the time before
            for names in self._some_names():
                for name in names:
                    sums.find_dead(queues[name])
                yield
            sums.dead = set(sums.dead_letter_queues)
        for names in self._some_names():
            for name in names:
                sums.add(queues[name])
                totals = counting.of(name)
                if totals is not None:
                    totals.look(self._seconds)
            if len(names) == SUMMED_AT_ONCE:
                yield
        sums.at = self._ledger.now
        self._last, self._last_seconds, self._job = sums, self._seconds, None
        while calls:
            self._done(calls[0], sums)
            del calls[0]
            if calls:
                yield

    def _some_names(self) -> Iterator[list[str]]:
        """Give the queues' names in order, some at a time, as they are then; the last list is shorter."""
        names, seen = self._ledger.state.names, ""
        while True:
            at = names.bisect_right(seen)
            some = list(names.islice(at, at + SUMMED_AT_ONCE))
            yield some
            if len(some) < SUMMED_AT_ONCE:
                return
            seen = some[-1]


def view_for(call: Call, state: ShardState, message: Message) -> MessageView:
    """Show a message as it is told to who knows jobs, or not."""
    return view_of(message, state.facts.tenures.at(message.msg_id // SHARDS_MAX) if call.request.as_job else None)


def fitting(messages: Iterator[Message], bytes_max: int) -> Iterator[Message]:
    """As many of the messages as fit a reply; at least one."""
    room = bytes_max
    for index, message in enumerate(messages):
        room -= weight(message) + REPLY_OVERHEAD_BYTES
        if room < 0 and index:
            return
        yield message


class _Scan:
    """A scan that is under way: it has `found` these, has `room` for more, and has `seen` the log up to that record.

    `next`: what the reply goes on after, None: there is nothing behind it.
    """

    def __init__(self, call: Call) -> None:
        after = call.request.after
        self.call = call
        self.seen = after if isinstance(after, int) else 0
        self.room = call.reply_bytes_max
        self.found: list[MessageView] = []
        self.next: int | None = None


class Scanning:
    """Of one shard. Its replies are parked like all others."""

    def __init__(self, context: ShardContext) -> None:
        self._ledger = context.ledger
        self._state = context.ledger.state
        self._view = context.view
        self._jobs = context.jobs
        self._soonest = Soonest(self._state, self._soon)

    def ask(self, call: Call) -> None:
        """Scan some of the queues, or of the messages with `full`, behind a place that holds whatever comes and goes.

        Of messages only those of `queue` and `state`, where that is given. `after` is a bucket of names, or the record
        that produced the last message. Sorted by `due`: the first `count` of the delayed, or of those in flight, of all
        queues, in the order of their times.
        """
        request = call.request
        if request.sort is not None:
            place = PLACES.get(request.state or "")
            if request.sort != "due" or not request.full or place is None:
                reason = f"is {request.sort!r}: a scan is sorted by due, with full and one state, {' or '.join(PLACES)}"
                return self._ledger.refuse_field(call, "sort", reason)
            count = min(request.count or SCAN_DEFAULT, SOONEST_MAX)
            self._jobs.add(call, self._soonest.look(call, place, count))
        elif not isinstance(request.after or 0, int):
            return self._ledger.refuse_field(call, "after", "is no number that a reply to scan called next")
        else:
            self._jobs.add(call, self._scan(_Scan(call)))
        return None

    def _scan(self, scan: "_Scan") -> Steps:
        while (reply := self._found(scan)) is None:
            yield
        self._ledger.answer_when_committed(scan.call, reply)

    def _found(self, scan: "_Scan") -> Reply | None:
        """Look at the next piece; the reply, None: it goes on."""
        call = scan.call
        request, after = call.request, call.request.after
        reply = done(request, ScanReply, shards=self._view.shards, now=self._ledger.now)
        if call.client.is_gone:  # nobody reads it
            reply.messages = [] if request.full else None
            return reply
        begun = after if isinstance(after, int) else 0
        count = min(request.count or SCAN_DEFAULT, SCAN_PIECE)
        if not request.full:
            reply.names, reply.next = self._names(call, begun, count)
        elif Right.LOOK in call.principal.rights.everywhere:
            reply.messages, reply.next = self._messages(call, begun, count)
        elif self._look_on(scan, count):
            reply.messages, reply.next = scan.found, scan.next
        else:
            return None
        return reply

    def _look_on(self, scan: "_Scan", count: int) -> bool:
        """Look at some more for a client that may not look at all queues; whether the reply is whole.

        Others' messages are passed over as if they were not there: they take no room, and neither the end of a reply
        nor what it calls `next` tells of them. So it goes on until it is full, or there is nothing behind.
        """
        call, rights, wanted = scan.call, scan.call.principal.rights, _states(scan.call)
        looked, last = self._state.messages.behind(scan.seen, SCAN_MAX)
        for message in looked:
            if rights.may(Right.LOOK, message.queue) and _is_meant(call, message, wanted):
                scan.room -= weight(message) + REPLY_OVERHEAD_BYTES
                if len(scan.found) >= count or (scan.found and scan.room < 0):
                    scan.next = scan.found[-1].msg_id // SHARDS_MAX
                    return True
                scan.found.append(view_for(call, self._state, message))
        if last is None:
            return True
        scan.seen = last
        return False

    def _names(self, call: Call, after: int, count: int) -> tuple[list[tuple[str, int]], int | None]:
        rights, queues = call.principal.rights, self._state.queues
        found: list[tuple[str, int]] = []
        for at in range(after, BUCKETS):
            if len(found) >= count:
                return found, at
            names = [name for name in self._state.buckets.at(at) if rights.may(Right.LOOK, name)]
            found += [(name, len(queues[name].ready)) for name in names]
        return found, None

    def _messages(self, call: Call, after: int, count: int) -> tuple[list[MessageView], int | None]:
        """Look at the next messages, for a client that may look at all of them."""
        room, end = call.reply_bytes_max, after
        found: list[MessageView] = []
        wanted = _states(call)
        is_choosy = wanted is not None or call.request.queue is not None
        looked, last = self._state.messages.behind(after, SCAN_MAX if is_choosy else count)
        for message in looked:
            if _is_meant(call, message, wanted):
                room -= weight(message) + REPLY_OVERHEAD_BYTES
                if len(found) >= count or (found and room < 0):
                    return found, end
                found.append(view_for(call, self._state, message))
            end = message.msg_id // SHARDS_MAX
        return found, last

    def _soon(self, call: Call, messages: list[Message]) -> None:
        reply = done(call.request, ScanReply, shards=self._view.shards, now=self._ledger.now)
        reply.messages = [
            view_for(call, self._state, message) for message in fitting(iter(messages), call.reply_bytes_max)
        ]
        self._ledger.answer_when_committed(call, reply)


def _states(call: Call) -> set[str] | None:
    """Read the states of messages that a scan asks for; None: all."""
    return None if call.request.state is None else set(call.request.state.split(","))


def _is_meant(call: Call, message: Message, wanted: set[str] | None) -> bool:
    """Whether a scan asks for it, by its queue and its state."""
    request = call.request
    if request.queue is not None and message.queue != request.queue:
        return False
    return wanted is None or state_of(message, is_job=bool(request.as_job)) in wanted
