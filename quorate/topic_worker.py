"""A worker of a topic: a member of a group that hands each message to a handler, and what fails to a queue.

    def handle(message):
        bill(message.data)

    TopicWorker(Client(), "orders", "billing", handle).run()

Messages of one key are handled one after the other, others beside each other. Where the group is, is committed when all
before it is done. A message whose handler raises goes, in one transaction with that, to the queue
`billing.retry.{orders}`, rests there for a while, longer each time, and is handled again by the same workers; after
`tries` it goes to `billing.dead.{orders}`, where `qctl` shows it. So one bad message holds up nobody. With `stop` it
does: the worker ends, and the message is the first that the next one gets.
"""

import asyncio
import inspect
import logging
import signal
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple

from quorate.client import Client
from quorate.delivered import DeliveredMessage
from quorate.errors import QuorateError, RefusedError, UnavailableError
from quorate.handler_loop import HandlerLoop, is_async, raised_by
from quorate.hands import Backoff
from quorate.protocol import BATCH_MAX, name_fault
from quorate.shards import has_tag
from quorate.streams import EARLIEST, Start, TopicMessage, is_not_owner
from quorate.texts import log_error, said_by
from quorate.topic_lanes import Job, Lanes
from quorate.topic_reader import TopicReader
from quorate.worker import HURRY_S, Reject, Retry, Worker

log = logging.getLogger("quorate.worker")

TopicHandler = Callable[[TopicMessage], Any] | Callable[[TopicMessage], Awaitable[Any]]

AHEAD: Final = 4
"""So many messages for each hand are read ahead."""

PAUSE_S: Final = 0.5
"""After a request that failed; and a worker that can begin nothing looks after its group so often."""

PREFIX: Final = "quorate-"
"""Before the names of the headers by which a message in the retry queue says where it was in its topic."""

PLACES: Final = ("partition", "offset", "msg_id", "produced_at", "position", "key", "attribute")
TRIES: Final = f"{PREFIX}tries"
REASON: Final = f"{PREFIX}reason"


class GroupReader(TopicReader):
    """A member of a group whose messages are not done when the next one is asked for: whoever reads says so."""

    def give(self) -> Job | None:
        """Give the next message; None: there is none yet. Raises what a read raises, and what ends a member."""
        if not self._begun:
            self._begin()
        with self._changed:
            message = self._places.take()
            self._places.not_done()
            generation = self._places.has.get(message.partition, 0) if message is not None else 0
        if message is None:
            self._read_some()
            return None
        return Job(message, generation)

    def tend(self, busy: set[int]) -> None:
        """Commit when it is time, and let go of what is another's, but for what is worked on."""
        with self._changed:
            self._places.busy = busy
        self._look_after_group()

    def done_to(self, job: Job, offset: int) -> None:
        """Note that the partition of a job is done up to that offset."""
        with self._changed:
            self._places.done_to(job.message.partition, job.generation, offset)


class _Limits(NamedTuple):
    """How many hands there are, how often a message is tried, and how long handlers have when it is stopped."""

    concurrency: int
    tries: int
    grace_s: float


class TopicWorker:
    """Works with `concurrency` hands on what a group has not read of a topic, and with as many on what failed.

    A message is tried `tries` times. `backoff`: how long it rests between. `stop`: the first failure ends the worker,
    and `run` raises what the handler raised; nothing behind it of its key is handled. A handler, plain or `async`,
    raises `Reject(reason)` for what is for nobody, and `Retry(s)` to say when it is tried again. `start`: where a group
    begins that was nowhere. `grace`: so many seconds handlers have to end when it is stopped. `counts`: how many
    messages were done, failed (and are tried again), and are dead.

    The client needs the rights consume on the topic and the retry queue, and produce on both queues. Where a member
    loses a partition while a handler works, another may handle that message as well: as with all leases, a handler
    must bear that (docs/streams.md).
    """

    def __init__(
        self,
        client: Client,
        topic: str,
        group: str,
        handler: TopicHandler,
        *,
        concurrency: int = 8,
        tries: int = 5,
        stop: bool = False,
        start: Start = EARLIEST,
        session: float = 30.0,
        grace: float = 30.0,
        backoff: Backoff | None = None,
    ) -> None:
        for name, value in (("concurrency", concurrency), ("tries", tries)):
            if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= BATCH_MAX:
                raise ValueError(f"{name} is {value!r}: from 1 to {BATCH_MAX}")
        self.retry_queue, self.dead_queue = queues_beside(topic, group)
        self._client = client
        self._topic = topic
        self._group = group
        self._handler = handler
        self._limits = _Limits(concurrency, tries, grace)
        self._stops = stop
        self._backoff = backoff or Backoff()
        self._asked: dict[str, Any] = {"start": start, "session": session}
        self._changed = threading.Condition()
        self._lanes = Lanes()
        self._loop: HandlerLoop | None = None
        self._is_stopping = False
        self._fault: BaseException | None = None
        self.counts = {"done": 0, "failed": 0, "dead": 0}

    # -- life --------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Work until `stop`, SIGTERM or SIGINT; at the second signal it ends at once.

        Signals are only looked at where this is the main thread. Raises RefusedError when the node will not have this
        client, or there is no such topic; with `stop` also what a handler raised.
        """
        if self._is_stopping:
            raise RuntimeError("this worker was stopped: make another")
        is_main = threading.current_thread() is threading.main_thread()
        before = [(one, signal.signal(one, self._signalled)) for one in (signal.SIGTERM, signal.SIGINT) if is_main]
        try:
            self._run()
        finally:
            for number, handler in before:
                signal.signal(number, handler)
        if self._fault is not None:
            raise self._fault

    def stop(self) -> None:
        """Begin with nothing more; what is in work may end within `grace`. Any thread may call it."""
        with self._changed:
            self._is_stopping = True
            self._changed.notify_all()

    def _signalled(self, number: int, frame: object) -> None:
        if self._is_stopping:
            self._limits = self._limits._replace(grace_s=0.0)
        self._is_stopping = True  # no lock: the thread that holds it may be the one that is interrupted

    def _ends_with(self, error: BaseException) -> None:
        with self._changed:
            self._fault = self._fault or error
            self._is_stopping = True
            self._changed.notify_all()

    def _run(self) -> None:
        concurrency = self._limits.concurrency
        log.info("works on topic %s as group %s with %d hands", self._topic, self._group, concurrency)
        reader = GroupReader(self._client, self._topic, self._group, **self._asked)
        self._loop = HandlerLoop() if is_async(self._handler) else None
        hands = [
            threading.Thread(target=self._keep_handling, args=(reader,), name=f"quorate-lane-{n}", daemon=True)
            for n in range(concurrency)
        ]
        retries = None if self._stops else self._worker_of_retries()
        if retries is not None:
            hands.append(threading.Thread(target=self._retry, args=(retries,), name="quorate-retries", daemon=True))
        for hand in hands:
            hand.start()
        try:
            while not self._is_stopping:
                self._read_some(reader)
        except BaseException as error:
            self._ends_with(error)
        finally:
            self.stop()
            if retries is not None:
                retries.stop()
            self._end(reader, hands)

    def _read_some(self, reader: GroupReader) -> None:
        """Have a message worked on; or wait, where so many are, or none is there, and look after the group."""
        with self._changed:
            busy, is_full = self._lanes.partitions, self._lanes.unfinished >= AHEAD * self._limits.concurrency
        try:
            reader.tend(busy)
            job = None if is_full else reader.give()
        except QuorateError as error:
            if isinstance(error, RefusedError) and not isinstance(error, UnavailableError):
                raise
            log.warning("nothing can be read of topic %s, and is tried again: %s", self._topic, error)
            is_full, job = True, None
        with self._changed:
            if job is not None:
                self._lanes.add(job)
                self._changed.notify()
            elif is_full and not self._is_stopping:
                self._changed.wait(PAUSE_S)

    def _end(self, reader: GroupReader, hands: list[threading.Thread]) -> None:
        """Wait for what is in work, commit what is done, and leave the group."""
        begun = time.monotonic()
        for hand in hands:
            while hand.is_alive() and time.monotonic() < begun + self._limits.grace_s:  # a second signal sets that to 0
                hand.join(0.1)
        hands[-1].join(HURRY_S)  # the last one has what failed before, and may have something to give back
        if any(hand.is_alive() for hand in hands):
            log.warning("handlers did not end in time: others get their messages")
        try:
            reader.close()
        except QuorateError as error:
            log.warning("where group %s of topic %s is could not be committed: %s", self._group, self._topic, error)
        if self._loop is not None:
            self._loop.end()

    # -- handling ----------------------------------------------------------------------------------------------

    def _keep_handling(self, reader: GroupReader) -> None:
        while (job := self._next_job()) is not None:
            self._handle(reader, job)

    def _next_job(self) -> Job | None:
        with self._changed:
            while not self._is_stopping:
                job = self._lanes.take()
                if job is not None:
                    return job
                self._changed.wait(PAUSE_S)
        return None

    def _call(self, message: TopicMessage) -> BaseException | None:
        """Have a message handled; returns what the handler raised."""
        try:
            result = self._handler(message)
            if not inspect.isawaitable(result):
                return None
            raised = raised_by(result)
            return asyncio.run(raised) if self._loop is None else self._loop.run(raised).result()
        except BaseException as error:  # whatever it is, the message must not be lost
            return error

    def _handle(self, reader: GroupReader, job: Job) -> None:
        error = self._call(job.message)
        if isinstance(error, asyncio.CancelledError) and self._is_stopping:
            return  # at the end: whoever goes on in the partition gets it
        if error is None:
            self._finished(reader, job, "done")
            return
        if self._stops:
            log_error(log, error, "%s failed, and the worker stops", _named(job.message))
            self._ends_with(error)
            return
        while not self._give_away(reader, job, error):
            with self._changed:
                if self._is_stopping:
                    return  # it is not done: whoever goes on in the partition gets it
                self._changed.wait(PAUSE_S)

    def _finished(self, reader: GroupReader, job: Job, what: str | None) -> None:
        """Note that a job is over, and that its message is done, failed or dead."""
        with self._changed:
            done = self._lanes.finished(job)
            if what is not None:
                self.counts[what] += 1
            self._changed.notify_all()
        reader.done_to(job, done)

    def _give_away(self, reader: GroupReader, job: Job, error: BaseException) -> bool:
        """Put a message that failed where it is tried again, or with the dead, together with where the group is then;
        returns whether that was done, or is another's to do."""
        message = job.message
        is_dead = isinstance(error, Reject) or self._limits.tries <= 1
        delay = 0.0 if is_dead else error.delay if isinstance(error, Retry) else self._backoff.rest_s(1)
        where = self.dead_queue if is_dead else self.retry_queue
        with self._changed:
            done = self._lanes.done_with(job)
        try:
            with self._client.transaction() as one:
                self._put(one, where, message, _reason_of(error), 1, delay)
                one.commit_positions(
                    self._topic,
                    self._group,
                    {message.partition: done},
                    member=reader.member,
                    generation=job.generation,
                )
        except RefusedError as refused:
            if is_not_owner(refused):
                log.warning("%s failed, and is another member's by now: %s", _named(message), said_by(error))
                self._finished(reader, job, None)
                return True
            if not isinstance(refused, UnavailableError):
                self._ends_with(refused)
            return False
        except QuorateError as failed:
            log.warning("%s failed, and can't be put into %s yet: %s", _named(message), where, failed)
            return False
        log_error(log, error, "%s failed, and is in queue %s now, for %.1f s", _named(message), where, delay)
        self._finished(reader, job, "dead" if is_dead else "failed")
        return True

    def _put(self, one: Any, queue: str, message: TopicMessage, reason: str, tries: int, delay: float) -> None:
        """Produce a message as it was, with headers that say where it was; once, however often it is read again.

        Who works on it has a session's time to say that it lives, as a member has.
        """
        headers = {**message.headers, TRIES: str(tries), REASON: reason}
        headers |= {f"{PREFIX}{name}": str(value) for name in PLACES if (value := getattr(message, name)) is not None}
        key = f"{message.partition}.{message.offset}"
        lease_s = self._asked["session"]
        one.produce(queue, message.data, delay=delay, retry=lease_s, headers=headers, key=key, on_duplicate="keep")

    # -- what failed -------------------------------------------------------------------------------------------

    def _worker_of_retries(self) -> Worker:
        return Worker(
            self._client,
            self.retry_queue,
            self._again,
            concurrency=self._limits.concurrency,
            grace=self._limits.grace_s,
            backoff=_Later(self._backoff.base_s, self._backoff.cap_s),
            dead_letters=False,
            on_lapsed=self._bury,
        )

    def _retry(self, worker: Worker) -> None:
        """Work on what failed before."""
        try:
            worker.run()
        except BaseException as error:
            self._ends_with(error)

    def _again(self, message: DeliveredMessage) -> None:
        """Handle a message again; one that has failed as often as it may goes to the dead."""
        tried = message.deliveries_here + 1
        error = self._call(_as_it_was(self._topic, message))
        if error is None:
            with self._changed:
                self.counts["done"] += 1
        elif isinstance(error, Reject) or tried >= self._limits.tries:
            self._bury(message, _reason_of(error), tried)
            log_error(log, error, "message %d of %s is dead", message.msg_id, message.queue)
        else:
            with self._changed:
                self.counts["failed"] += 1
            raise error  # it comes again, later each time

    def _bury(self, message: DeliveredMessage, reason: str, tried: int | None = None) -> None:
        with self._client.transaction() as one:
            one.confirm(message)
            self._put(one, self.dead_queue, _as_it_was(self._topic, message), reason, tried or message.deliveries, 0.0)
        with self._changed:
            self.counts["dead"] += 1


class _Later(Backoff):
    """A message that comes to its second try has failed twice when it fails."""

    def rest_s(self, deliveries: int, draw: float | None = None) -> float:
        """After one delivery more than the queue has counted."""
        return super().rest_s(deliveries + 1, draw)


def queues_beside(topic: str, group: str) -> tuple[str, str]:
    """Name the queues of what failed and what is dead: in the topic's shard. Raises ValueError for too long names."""
    tagged = topic if has_tag(topic) else f"{{{topic}}}"
    names = f"{group}.retry.{tagged}", f"{group}.dead.{tagged}"
    for name in names:
        fault = name_fault(name)
        if fault is not None:
            raise ValueError(f"the queue {name!r}, for what fails, {fault}")
    return names


def _as_it_was(topic: str, message: DeliveredMessage) -> TopicMessage:
    """Make the topic's message again of one in a queue beside it."""
    said = {name.removeprefix(PREFIX): text for name, text in message.headers.items() if name.startswith(PREFIX)}
    headers = {name: text for name, text in message.headers.items() if not name.startswith(PREFIX)}
    return TopicMessage(
        topic,
        int(said.get("partition", 0)),
        int(said.get("offset", 0)),
        message.data,
        int(said.get("msg_id", message.msg_id)),
        float(said.get("produced_at", message.produced_at)),
        int(said.get("position", 0)),
        said.get("key"),
        headers,
        said.get("attribute"),
    )


REASON_CHARACTERS: Final = 300


def _reason_of(error: BaseException) -> str:
    """Say what a handler raised, in a header."""
    said = str(error.reason or "it was rejected") if isinstance(error, Reject) else said_by(error)
    return said[:REASON_CHARACTERS]


def _named(message: TopicMessage) -> str:
    return f"message {message.offset} of partition {message.partition} of topic {message.topic}"
