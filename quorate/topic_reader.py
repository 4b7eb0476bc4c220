"""Iterating over a topic: alone, or as a member of a group, whose heartbeats a thread of its own says."""

import logging
import threading
import time
import weakref
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from quorate.errors import QuorateError, RefusedError, UnavailableError
from quorate.streams import (
    TopicMessage,
    behind_gap,
    chosen_partitions,
    is_not_owner,
    is_unknown_member,
)
from quorate.topic_places import PAUSE_S
from quorate.topic_reading import TopicReading

if TYPE_CHECKING:
    from quorate.topic_calls import TopicCalls

log = logging.getLogger("quorate")


class TopicReader(TopicReading["TopicCalls"]):
    """An iterator over messages; a context manager that closes it. Made by `Client.read`.

    Left by `with` without an error, or closed, the message that was given last is done; left with an error it is not.
    One thread at a time may use it. `member`: the name by which the group knows it.
    """

    _begun = False  # also where the constructor has raised, and `__del__` looks

    def __init__(self, client: "TopicCalls", topic: str, group: str | None, **asked: Any) -> None:
        super().__init__(client, topic, group, **asked)
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    # -- iterating ---------------------------------------------------------------------------------------------

    def __iter__(self) -> Self:
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is not None:
            self._places.not_done()
        self.close()

    def __del__(self) -> None:
        if self._begun and not self._closed:  # the loop was left, and nobody says whether its body was done
            self._places.not_done()
            try:
                self.close()
            except QuorateError:
                log.warning("where group %r of topic %r is could not be committed", self.group, self._topic)

    def __next__(self) -> TopicMessage:
        if not self._begun:
            self._begin()
        with self._changed:
            self._places.done()
        while not self._closed:
            self._look_after_group()
            with self._changed:
                message = self._places.take()
                is_at_end = self._places.is_at_end
            if message is not None:
                return message
            if is_at_end:
                break
            self._read_some()
        self.close()
        raise StopIteration

    def close(self) -> None:
        """Commit where the group is, and leave it."""
        if self._closed:
            return
        self._closed = True
        with self._changed:
            self._places.done()
            self._changed.notify_all()
        if self.group is None or not self._begun:
            return
        try:
            self.commit()
            if self._places.has_done:  # a new leader has not heard of this member yet
                self._heartbeat(self.group, is_first=True)
                self.commit()
        finally:
            self._leave(self.group)

    def _leave(self, group: str) -> None:
        """Tell the group, which ends the wait of the heartbeat that is under way. One that was sent later joins again:
        so tell it again behind the last.
        """
        try:
            self._client.leave_group(self._topic, group, self.member)
            if self._thread is not None and self._thread is not threading.current_thread():
                self._thread.join(self._places.answer_s)
                self._client.leave_group(self._topic, group, self.member)
        except QuorateError as error:
            log.debug("leaving group %r of topic %r: %s", group, self._topic, error)

    def commit(self) -> None:
        """Commit where the group is now: what is done counts, and the message that was given last is not.

        What is another member's by now is not committed: that one reads it again.
        """
        if self.group is None:
            return
        with self._changed:
            positions, generation = self._places.take_done(time.monotonic())
        if not positions:
            return
        try:
            self._client.commit_positions(self._topic, self.group, positions, member=self.member, generation=generation)
        except QuorateError as error:
            if not is_not_owner(error):
                self._put_back(positions)
                raise
            log.warning("group %r of topic %r: %s", self.group, self._topic, error)
            if is_unknown_member(error):  # after its next heartbeat it is known
                self._put_back(positions)
            elif len(positions) > 1:
                self._commit_each(self.group, positions, generation)

    def _commit_each(self, group: str, positions: dict[int, int], generation: int) -> None:
        """Commit what is still this member's, where some of it is another's."""
        for index, at in positions.items():
            try:
                self._client.commit_positions(
                    self._topic, group, {index: at}, member=self.member, generation=generation
                )
            except QuorateError as error:
                if not is_not_owner(error):
                    self._put_back({index: at})
                    raise

    def _put_back(self, positions: dict[int, int]) -> None:
        with self._changed:
            self._places.put_back(positions)

    def _begin(self) -> None:
        if self.group is None:
            chosen, ends = chosen_partitions(self._topic, self._client.topic(self._topic), self._partitions)
            self._places.alone(chosen, None if self._follows else ends)
        else:
            self._heartbeat(self.group, is_first=True)
            name = f"quorate-{self.group}"
            self._thread = threading.Thread(target=_live, args=(weakref.ref(self),), name=name, daemon=True)
            self._thread.start()
        self._begun = True

    def _read_some(self) -> None:
        """Read a part of the next partition, or wait a while where there is none."""
        with self._changed:
            chosen = self._places.to_read()
            if chosen is None:
                self._changed.wait(PAUSE_S)
                return
        index, start, wait = chosen
        try:
            part = self._client.read_part(self._topic, index, start, count=self._count, wait=wait, group=self.group)
        except RefusedError as error:
            part = behind_gap(error)
            log.warning("%s", error)
        with self._changed:
            self._places.came(index, start, part)

    # -- the group ---------------------------------------------------------------------------------------------

    def _look_after_group(self) -> None:
        """Commit when it is time, and let go of what is another's."""
        if self.group is None:
            return
        if self._fault is not None:
            raise self._fault
        with self._changed:
            is_due = self._places.is_to_commit(time.monotonic())
        if is_due:
            self.commit()
        with self._changed:
            if self._places.is_to_let_go:
                self._places.let_go()
                self._changed.notify_all()

    def _heartbeat(self, group: str, *, is_first: bool = False) -> None:
        asked_at = time.monotonic()
        with self._changed:
            owns, wait = self._places.beat(asked_at, is_first=is_first)
        client = self._client.within(self._places.answer_s)
        share = client.heartbeat(self._topic, group, self.member, owns, session=self._places.session, wait=wait)
        with self._changed:
            self._places.told(share, asked_at)
            self._changed.notify_all()

    def live(self, group: str) -> bool:
        """Say one heartbeat, and pause where that is needed; returns whether there is to be another."""
        try:
            self._heartbeat(group)
        except UnavailableError as error:
            log.info("group %r of topic %r: %s", group, self._topic, error)
            with self._changed:
                self._changed.wait(PAUSE_S)
        except RefusedError as error:
            self._fault = error
            return False
        except QuorateError as error:
            log.info("group %r of topic %r: %s", group, self._topic, error)
            with self._changed:
                self._changed.wait(PAUSE_S)
        except Exception as error:  # whoever iterates is to know
            self._fault = error
            return False
        with self._changed:
            if self._places.is_to_let_go and not self._closed:
                self._changed.wait(self._places.answer_s)
        return not self._closed


def _live(reader: "weakref.ref[TopicReader]") -> None:
    """Say a reader's heartbeats, until it is closed or nobody has it any more."""
    while True:
        living = reader()
        if living is None or living.group is None or not living.live(living.group):
            return
        del living
