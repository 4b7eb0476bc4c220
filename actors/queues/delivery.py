"""Delivery: which message goes to whom, and what time does to messages. A machine: no I/O, no clock of its own.

The rules (design.md, section 1), each with a property test in tests/actors/queues/test_broker_rules.py:

- order within a queue: higher priority, then earlier due, then earlier produced;
- `retry_s` 0: the message is gone when it is delivered, unless it is kept: then it is in flight until it expires, and
  never ready again; otherwise it is in flight for `retry_s` seconds, and then ready again, unless that would be at or
  past its expiry: then it waits for its confirmation until it expires;
- a message that was delivered before and may not be delivered again (expired, or `max_deliveries` reached) is
  dropped, or moved to the dead letter queue; one that was never delivered stays however old it is, unless it was
  produced to be dropped when it expires: then it goes, and to no dead letter queue, or to be buried then;
- who holds a message may extend that beyond its expiry: it is in flight as long as that says, and ends with it;
- where a queue takes nothing in, what comes due there is held back until it does, unless it is delivered at most once;
- consumers that wait are served in the order in which they came, whatever queue their message comes from.
"""

from collections.abc import Callable
from typing import Final

from actors.messages.call import Call, Client
from actors.messages.rights import Principal, not_allowed
from actors.queues.handing_out import Ending, HandingOut
from actors.queues.idle_queues import IdleQueues, QueueAlarms
from actors.queues.wait_queues import ESCAPED, Waiter, WaitQueues, most_reply_bytes, nothing
from actors.shard.ledger import Ledger
from quorate.protocol import ErrorWord, Reply, refusal
from storage.message import Message, weight
from storage.queue_state import QueueState
from storage.records import Place
from storage.state import ShardState

REPLY_OVERHEAD_BYTES: Final = 400
"""What a reply needs beside each message's data: names, numbers, the queue's name."""

TURN_WORK_MAX: Final = 500
"""Messages that are moved, ended or handed to who waits in one turn, and waits that end: some 3 ms of work.

After it sockets have their turn. The rest goes on by an alarm that is due at once.
"""


class Delivery:
    """Hands messages out. `leases_are_committed`: replies of at-least-once deliveries wait for their commit, too.

    `lines`: who waits for messages. `key_lines`: who waits for a key of a queue (`key_line`); while somebody does,
    `on_keyed` is told of messages that have come into their queues. `read_lines`: who waits for more of a partition of
    a topic; `member_lines`: members of groups that wait for other partitions. `idle`: which queues nobody uses.
    `handing` does what follows for a message that goes to somebody. `put_off`: messages that are to be placed later;
    None: all are at once.
    """

    def __init__(self, ledger: Ledger, *, leases_are_committed: bool = False) -> None:
        self._ledger = ledger
        self._state = ledger.state
        self.lines = WaitQueues()
        self.key_lines = WaitQueues()
        self.read_lines = WaitQueues()
        self.member_lines = WaitQueues()
        self.on_keyed: Callable[[list[Message]], None] = lambda messages: None
        self.alarms = QueueAlarms()
        self.ending = Ending(ledger)
        self.put_off: list[Message] | None = None
        self._serving: dict[str, QueueState] | None = None
        self._work = TURN_WORK_MAX
        self._unserved: set[str] = set()
        self._to_end: set[str] = set()
        self.idle = IdleQueues(self._state.queues, lambda name: name in self.lines, ledger.now)
        self.handing = HandingOut(ledger, self.alarms, leases_are_committed=leases_are_committed)
        for queue in self._state.queues.values():
            self.alarms.set(queue.name, ledger.now if _has_more_held(self._state, queue) else queue.next_event_at)

    def begin(self) -> None:
        """Begin a turn: there is `TURN_WORK_MAX` to be done in it."""
        self._work = TURN_WORK_MAX

    # -- consuming ---------------------------------------------------------------------------------------------

    def consume(self, call: Call, names: list[str], count: int | None, wait_s: float) -> None:
        """Answer with what is ready in the first of the queues that has something, or let the consumer wait."""
        told_of = self.lines.came(call.client) if self.lines.has_told else None
        if self.idle.has_any:
            self.idle.used(names, self._ledger.now)
        if count and len(names) > 1 and call.request.in_turn:
            self._consume_in_turn(call, names, count, wait_s)
        else:
            self._consume(call, names, count, wait_s)
        if told_of:
            self._serve_named(told_of)

    def _consume(self, call: Call, names: list[str], count: int | None, wait_s: float) -> None:
        now = self._ledger.now
        for name in names:
            queue = self._state.queues.get(name)
            if queue is None:
                continue
            queue.life.used_at = now
            if queue.ready and not queue.paused:
                if wait_s and name in self._unserved and name in self.lines:
                    continue  # those in line have not had their turn yet
                if self._is_too_large(call, queue):
                    return
                messages = self._take_ready(queue, count or 1, call.reply_bytes_max)
                if messages:
                    self.handing.hand_out(call, queue.name, messages, count)
                    return
        self._wait_or_not(call, names, count, wait_s)

    def _wait_or_not(self, call: Call, names: list[str], count: int | None, wait_s: float) -> None:
        """Nothing was there."""
        if wait_s > 0:
            if count is not None and call.request.as_job:
                count = 1  # a job goes to one who waits as soon as it is there
            self.lines.stand(Waiter(call, names, count, self._ledger.now + wait_s))
        else:
            self._ledger.answer_if_leased(call, nothing(call, names))

    def _consume_in_turn(self, call: Call, names: list[str], count: int, wait_s: float) -> None:
        """Answer with one message of each queue, again and again, or let the consumer wait."""
        queues: list[QueueState] = []
        for name in names:
            queue = self._state.queues.get(name)
            if queue is None:
                continue
            queue.life.used_at = self._ledger.now
            if queue.ready and not queue.paused:
                if wait_s and name in self._unserved and name in self.lines:
                    continue
                if self._is_too_large(call, queue):
                    return
                queues.append(queue)
        taken: list[Message] = []
        by_queue: dict[str, list[Message]] = {}
        room = call.reply_bytes_max
        while queues and len(taken) < count and self._work > 0:
            for queue in list(queues):
                size = weight(self._state.messages[queue.ready.first[2]]) + REPLY_OVERHEAD_BYTES if queue.ready else 0
                if len(taken) == count or (taken and size > room):
                    queues.clear()
                    break
                messages = self._take_ready(queue, 1, call.reply_bytes_max)
                if not messages:
                    queues.remove(queue)
                    continue
                room -= size
                taken += messages
                by_queue.setdefault(queue.name, []).extend(messages)
        if not taken:
            self._wait_or_not(call, names, count, wait_s)
            return
        has_kept = [self.handing.log(call.request, name, messages) for name, messages in by_queue.items()]
        self.handing.tell(call, taken[0].queue, taken, count, must_be_logged=any(has_kept))

    def watch_for(self, call: Call, names: list[str], wait_s: float) -> None:
        """Answer as soon as one of the queues has a message for this client, and leave it there for now."""
        self.idle.used(names, self._ledger.now)
        for name in names:
            queue = self._state.queues.get(name)
            if queue is not None and not queue.paused and self.lines.untold(queue, self._ledger.now) > 0:
                self._tell(call, queue)
                return
        if wait_s > 0:
            self.lines.stand(Waiter(call, names, None, self._ledger.now + wait_s, only_watches=True))
        else:
            self._ledger.answer_if_leased(call, nothing(call, names))

    def _tell(self, call: Call, queue: QueueState) -> None:
        self.alarms.set(queue.name, self.lines.tell(queue.name, call.client, self._ledger.now))
        request = call.request
        self._ledger.answer_if_leased(
            call, Reply(action=request.action, code=0, queue=queue.name, seq=request.seq, count=len(queue.ready))
        )

    def _serve_named(self, names: list[str]) -> None:
        for name in names:
            queue = self._state.queues.get(name)
            if queue is not None:
                self.serve(queue)

    def serve(self, queue: QueueState) -> None:
        """Give what is ready to those who wait for it.

        Taking a message may bury others, and so call this for their dead letter queue: that queue's turn comes when
        this one is done, since both may have the same waiter.
        """
        if queue.name not in self.lines:
            self._unserved.discard(queue.name)
            return
        if self._serving is not None:
            self._serving[queue.name] = queue
            return
        self._serving = serving = {queue.name: queue}
        while serving:
            self._serve_one(serving.pop(next(iter(serving))))
        self._serving = None

    def _serve_one(self, queue: QueueState) -> None:
        lines = self.lines
        self._unserved.discard(queue.name)
        while queue.ready and not queue.paused:
            waiter = lines.first(queue.name)
            if waiter is None or (lines.has_told and lines.untold(queue, self._ledger.now) <= 0):
                return
            if self._work <= 0:
                self._unserved.add(queue.name)
                self.alarms.set(queue.name, self._ledger.now)
                return
            self._work -= 1
            if waiter.call.client.has_left:  # it is forgotten in a later turn (`Departures`), and would not confirm
                self._give_up(waiter)
                continue
            if waiter.only_watches:
                self._leave(waiter)
                self._tell(waiter.call, queue)
                continue
            if self._is_too_large(waiter.call, queue):
                self._leave(waiter)
                continue
            messages = self._take_ready(queue, waiter.count or 1, waiter.call.reply_bytes_max)
            if not messages:
                return
            self._leave(waiter)
            self.handing.hand_out(waiter.call, queue.name, messages, waiter.count)

    def _is_too_large(self, call: Call, queue: QueueState) -> bool:
        """Whether the next message does not fit a reply on this transport; it is refused then, and not taken."""
        message = self._state.messages[queue.ready.first[2]]
        size = weight(message)
        if ESCAPED * size + 5 * REPLY_OVERHEAD_BYTES <= call.reply_bytes_max:
            return False  # nearly always
        if most_reply_bytes(message, is_full=bool(call.request.full)) <= call.reply_bytes_max:
            return False
        reason = f"the next message has {len(message.data)} bytes, too many for a reply here: ask over TCP"
        self._ledger.answer(call, refusal(call.request, ErrorWord.TOO_LARGE, reason))
        return True

    def forget(self, client: Client) -> None:
        """End the waits of a client that is gone or about to go."""
        for waiter in self.lines.of_client(client):
            self._give_up(waiter)
        if self.lines.has_told:
            self._serve_named(self.lines.came(client))

    def rejudge(self, client: Client, principal: Principal) -> None:
        """Let the client wait on for what it still may have: what it may do has changed."""
        for waiter in self.lines.of_client(client):
            waiter.call.principal = principal
            missing = principal.rights.missing(waiter.call.request)
            if missing is not None:
                self._leave(waiter)
                self._ledger.answer(waiter.call, not_allowed(waiter.call.request, missing))

    def take_lines(self) -> WaitQueues:
        """Hand over the lines with all consumers that wait: nobody does here any more. See `Leftovers`."""
        lines = self.lines
        if len(lines):
            self.lines = WaitQueues()
        return lines

    # -- placing -----------------------------------------------------------------------------------------------

    def place(self, message: Message) -> None:
        """Put an unplaced message where the time and the rules want it, and serve who waits for it."""
        if self.put_off is not None:
            self.put_off.append(message)
            return
        queue = self._state.queues[message.queue]
        if self.ending.is_due(queue, message):
            self._end(queue, [message])
            return
        place = queue.place(message, self._ledger.now)
        if place == Place.DELAYED:
            self.alarms.set(queue.name, message.due_at)
            return
        if place != Place.READY:
            self.alarms.set(queue.name, queue.next_event_at)
        self.serve(queue)

    def place_produced(self, messages: list[Message]) -> None:
        """Place messages that are committed; all of them before anyone is served, so that batches fill up."""
        now = self._ledger.now
        live = self._state.messages
        lines = self.lines
        to_serve: dict[str, QueueState] = {}
        for message in messages:
            if live.get(message.msg_id) is None or message.place:
                continue  # cleared before it was committed; or one that came twice
            queue = self._state.queues[message.queue]
            if message.deliveries and self.ending.is_due(queue, message):  # a transaction has given it back
                self._end(queue, [message])
                continue
            place = queue.place(message, now)
            if place == Place.DELAYED:
                self.alarms.set(queue.name, message.due_at)
                continue
            if place != Place.READY:
                self.alarms.set(queue.name, queue.next_event_at)
            if queue.name in lines:
                to_serve[queue.name] = queue
        if len(self.key_lines):
            self.on_keyed(messages)
        for queue in to_serve.values():
            self.serve(queue)

    # -- time --------------------------------------------------------------------------------------------------

    def forget_queue(self, name: str) -> None:
        """Forget a queue that is gone: nothing happens in it any more."""
        self.alarms.forget(name)
        self.idle.forget(name)

    @property
    def next_event_at(self) -> float:
        """When `pass_time` has something to do (Unix seconds), `NEVER` if nothing is to be waited for."""
        return min(self.alarms.next_at, self.lines.next_deadline)

    def pass_time(self) -> None:
        """Do what is due by the ledger's now, as much as one turn does."""
        now = self._ledger.now
        while self._work > 0 and (name := self.alarms.due(now)) is not None:
            queue = self._state.queues.get(name)
            self.lines.told(name, now)  # what was kept for too long is not any more, also where nobody is in line
            if queue is None:
                self._unserved.discard(name)
                self._to_end.discard(name)
                continue
            self._draw_near(queue, now)
            self._move_due(queue, now)
            if _has_more_held(self._state, queue):
                self._let_in(queue, now)
            self.alarms.set(name, min(queue.next_event_at, self.lines.told_until(name)))
        for waiter in self.lines.late(now):
            if self._work <= 0:
                break
            self._work -= 1
            self._give_up(waiter)

    def _move_due(self, queue: QueueState, now: float) -> None:
        self._work -= 1
        ended: list[Message] = []
        while self._work > 0 and (msg_id := queue.first_due(now)) is not None:
            self._work -= 1
            message = self._state.messages[msg_id]
            queue.lift(message)
            if self.ending.is_due(queue, message):
                ended.append(message)
            else:
                queue.place(message, now)
        if ended:
            self._end(queue, ended)
        if queue.name in self._to_end:
            self._end_more(queue)
        self.serve(queue)

    def _draw_near(self, queue: QueueState, now: float) -> None:
        """Ready messages that will expire soon are put where they are found then, some of them in each turn."""
        far = queue.far
        while far is not None and self._work > 0 and (at := far.next_at) is not None and at <= now:
            for msg_id in far.near(self._work):
                self._work -= 1
                message = self._state.messages[msg_id]
                queue.leave_expiring(message)
                queue.place_expiring(message, now)

    def _let_in(self, queue: QueueState, now: float) -> None:
        """Let the queue take something in again: what has come due meanwhile is ready, some of it in each turn."""
        while self._work > 0 and _has_more_held(self._state, queue):
            self._work -= 1
            message = self._state.messages[queue.held.first[1]]
            queue.lift(message)
            self.place(message)
        if _has_more_held(self._state, queue):
            self.alarms.set(queue.name, now)

    def _end(self, queue: QueueState, messages: list[Message]) -> None:
        """Of messages that may not go out again."""
        for message in self.ending.end(queue, messages):
            self.place(message)

    def bury(self, queue: QueueState, messages: list[Message], reason: str | None) -> None:
        """Bury these for that reason: a consumer does not want them, and they have a dead letter queue."""
        self.ending.bury(queue, messages, reason)
        for message in messages:
            self.place(message)

    # -- handing out -------------------------------------------------------------------------------------------

    def _take_ready(self, queue: QueueState, count: int, bytes_max: int) -> list[Message]:
        """Take the next messages out of the indexes; those that may not go out again are ended on the way.

        At most `count`, and not more than fit `bytes_max`. None, too, where so many are ended that it takes more turns.
        """
        messages: list[Message] = []
        ended: list[Message] = []
        ready = queue.ready
        live = self._state.messages
        room = bytes_max
        self._ledger.has_begun = True
        while ready and len(messages) < count:
            first = ready.pop_first()
            message = live[first[2]]
            room -= weight(message) + REPLY_OVERHEAD_BYTES
            if room < 0 and messages:
                ready.add(first)
                break
            if message.place != Place.READY:
                queue.leave_expiring(message)
            message.place = Place.UNPLACED
            queue.unplaced += 1
            if not self.ending.is_due(queue, message):
                messages.append(message)
                queue.life.given_out += 1
                continue
            ended.append(message)
            self._work -= 1
            if self._work <= 0:
                self._to_end.add(queue.name)
                self.alarms.set(queue.name, self._ledger.now)
                break
        if ended:
            self._end(queue, ended)
        return messages

    def _end_more(self, queue: QueueState) -> None:
        """End what stands first and may not go out again, where that took more than one turn."""
        self._to_end.discard(queue.name)
        live, ready = self._state.messages, queue.ready
        ended: list[Message] = []
        while ready and self._work > 0:
            message = live[ready.first[2]]
            if not self.ending.is_due(queue, message):
                break
            queue.lift(message)
            ended.append(message)
            self._work -= 1
        if ended:
            self._end(queue, ended)
        if ready and self._work <= 0:
            self._to_end.add(queue.name)
            self.alarms.set(queue.name, self._ledger.now)

    def _leave(self, waiter: Waiter) -> None:
        """End its wait; until now its queues were in use."""
        self.lines.leave(waiter)
        for name in waiter.queues:
            queue = self._state.queues.get(name)
            if queue is not None:
                queue.life.used_at = self._ledger.now
        if self.idle.has_any:
            self.idle.used(waiter.queues, self._ledger.now)

    def cancel(self, client: Client, seq: object) -> bool:
        """End the wait of that client's request, as if its time were over; whether it waited."""
        waiter = self.lines.find(client, seq)
        if waiter is None:
            return False
        self._ledger.has_begun = True  # another call ends with this one: half of that can't be taken back
        self._give_up(waiter)
        return True

    def _give_up(self, waiter: Waiter) -> None:
        self._leave(waiter)
        self._ledger.answer(waiter.call, nothing(waiter.call, waiter.queues))


def key_line(queue: str, key: str) -> str:
    """Name the line of those who wait for a key of a queue: no name has a control character in it."""
    return f"{queue}\0{key}"


def _has_more_held(state: ShardState, queue: QueueState) -> bool:
    """Whether messages were held back that may come in now."""
    return bool(queue.held) and not queue.holds_back(state.messages[queue.held.first[1]])
