"""The ledger: numbers records, applies them as they are made, and holds replies back until they are durable.

The one rule here is the promise of a reply: what it says was true of committed state. So a reply is parked until
all that had been applied when it was made is committed; only a delivery that may be repeated (design.md, section 1)
is answered at once. A produced message is shown to nobody before its record is committed.
"""

from collections import deque
from collections.abc import Callable

from actors.messages import Answer, Call
from quorate.protocol import Reply
from storage.records import Message, Record, message_id
from storage.state import ShardState


class Ledger:
    """What one shard's owner has made and not yet seen committed. All times are the leader's, Unix seconds."""

    def __init__(self, state: ShardState) -> None:
        self.state = state
        self.now = state.time
        self.committed = state.trans_id
        self.records: list[Record] = []
        self.answers: list[Answer] = []
        self._parked: deque[tuple[int, Call, Reply]] = deque()
        self._after_commit: deque[tuple[int, Callable[[], None]]] = deque()
        self._unplaced: deque[Message] = deque()

    def set_time(self, now: float) -> None:
        """The leader's clock within a log never goes back."""
        if now > self.now:
            self.now = now

    def append(self, record: Record) -> None:
        """Apply a new record and queue it for the log."""
        self.state.apply_next(record)
        self.records.append(record)

    def produced(self, message: Message) -> None:
        """The message of a produce record just appended is placed when that is committed."""
        self._unplaced.append(message)

    def answer(self, call: Call, reply: Reply) -> None:
        """Answer at once."""
        self.answers.append((call, reply))

    def park(self, call: Call, reply: Reply) -> None:
        """Answer when all that is applied by now is committed."""
        trans_id = self.state.trans_id
        if trans_id == self.committed:
            self.answers.append((call, reply))
        else:
            self._parked.append((trans_id, call, reply))

    def after_commit(self, action: Callable[[], None]) -> None:
        """Call `action` when all that is applied by now is committed."""
        if self.state.trans_id == self.committed:
            action()
        else:
            self._after_commit.append((self.state.trans_id, action))

    def commit(self, trans_id: int) -> list[Message]:
        """Records up to `trans_id` are committed: free the replies; returns the produced messages to place now."""
        self.committed = trans_id
        parked = self._parked
        answers = self.answers
        while parked and parked[0][0] <= trans_id:
            _, call, reply = parked.popleft()
            answers.append((call, reply))
        while self._after_commit and self._after_commit[0][0] <= trans_id:
            self._after_commit.popleft()[1]()
        unplaced = self._unplaced
        placeable: list[Message] = []
        bound = message_id(trans_id + 1, 0)
        while unplaced and unplaced[0].msg_id < bound:
            placeable.append(unplaced.popleft())
        return placeable

    def take_records(self) -> list[Record]:
        """The records that are to be logged next; they are the caller's now."""
        records = self.records
        self.records = []
        return records

    def take_answers(self) -> list[Answer]:
        """The answers that may leave; they are the caller's now."""
        answers = self.answers
        self.answers = []
        return answers

    @property
    def parked_count(self) -> int:
        """How many replies wait for a commit."""
        return len(self._parked)

    @property
    def is_awaited(self) -> bool:
        """Whether anyone waits for a commit."""
        return bool(self._parked or self._after_commit)

    @property
    def is_settled(self) -> bool:
        """Whether everything applied is committed."""
        return self.committed == self.state.trans_id

    @property
    def uncommitted_ids(self) -> list[int]:
        """The ids of the messages that are produced but not committed."""
        return [message.msg_id for message in self._unplaced]
