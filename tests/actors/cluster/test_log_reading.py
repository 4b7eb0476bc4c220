"""Readers of the whole log: one part at a time, and a rest while others are being served."""

from typing import Any

from actors.cluster.log_reading import LogReading
from actors.cluster.membership import Membership
from actors.cluster.replicated_log import ReplicatedLog
from actors.messages.call import Call
from actors.messages.calls import Answered
from actors.messages.checkpoints import RawRead, ReadRaw
from quorate.log_replies import LogReplyWithEntries
from quorate.protocol import Request
from storage import entry_codec
from storage.entry import StoredEntry
from storage.log_tail import LogTail
from storage.records import Lead, Member


class Client:
    """Somebody who reads."""

    has_left = False

    has_ended = False

    def __init__(self) -> None:
        self.is_gone = False

    def answer(self, order: int, request: Request, reply: Any) -> None:
        raise AssertionError("answers are decisions")


class Nobody:
    def tell(self, message: Any) -> None:
        raise AssertionError("answers are decisions")


def entry(number: int) -> StoredEntry:
    return entry_codec.stored_entry(entry_codec.encode(1, number, 1.0, [Lead("", 1)]))


class Log:
    """A log whose records up to 10 are in LMDB, and those up to 15 in memory, of which 14 are committed."""

    def __init__(self) -> None:
        tail = LogTail([(0, 1)], 10, [entry(n) for n in range(11, 16)])
        self.log = ReplicatedLog(tail, Membership(Member(1, "", 0), None), committed=14, trimmed=2)
        self.reading = LogReading(self.log)

    def ask(self, now: float, *, after: int, count: int | None = None, **more: Any) -> list[Any]:
        call = Call(Request(14, raw=True, after=after, count=count), Client(), 1, Nobody(), **more)
        return list(self.reading.asked(now, call))


def answered(decisions: list[Any]) -> Any:
    [decision] = [one for one in decisions if isinstance(one, Answered)]
    return decision.answers[0][1]


def test_what_is_in_memory_is_given_up_to_the_commit() -> None:
    reply = answered(Log().ask(0.0, after=11))
    assert isinstance(reply, LogReplyWithEntries)
    assert (reply.last_trans_id, reply.committed, len(reply.entries)) == (14, 14, 3)
    assert reply.bytes == sum(map(len, reply.entries)) + 4 * 3


def test_there_may_be_nothing_new() -> None:
    reply = answered(Log().ask(0.0, after=14))
    assert (reply.last_trans_id, reply.bytes) == (14, 0)


def test_a_count_bounds_a_part() -> None:
    assert len(answered(Log().ask(0.0, after=10, count=2)).entries) == 2


def test_what_is_trimmed_is_refused() -> None:
    assert answered(Log().ask(0.0, after=1)).error == "trimmed"


def test_a_datagram_takes_no_part() -> None:
    assert answered(Log().ask(0.0, after=11, is_single=True)).error == "not_supported"


def test_one_part_is_read_at_a_time() -> None:
    log = Log()
    [read] = log.ask(0.0, after=2)
    assert isinstance(read, ReadRaw)
    assert log.ask(0.0, after=5) == []
    found = [entry(n).data for n in range(3, 11)]
    first, second = log.reading.raw_read(1.0, RawRead(read.call, found, 10))
    assert answered([first]).last_trans_id == 10
    assert isinstance(second, ReadRaw)
    assert second.after == 5


def test_while_the_log_grows_readers_rest_between_parts() -> None:
    log = Log()
    [read] = log.ask(0.0, after=2)
    log.ask(0.0, after=5)
    log.log.tail.append(entry(16))
    decisions = log.reading.raw_read(0.1, RawRead(read.call, [entry(3).data], 3))
    assert len(decisions) == 1, "the first is answered, the second waits"
    delay_s = log.reading.timer(0.1)
    assert delay_s is not None
    assert 0.0 < delay_s < 0.9
    assert log.reading.timer(0.1) is None, "it was said"
    assert log.reading.tick(0.15) == []
    assert isinstance(log.reading.rested(0.1 + delay_s)[0], ReadRaw)
    assert log.reading.timer(1.0) is None, "one is being read"


def test_a_head_that_goes_while_it_is_read_is_told() -> None:
    log = Log()
    [read] = log.ask(0.0, after=2)
    log.log.trimmed = 6
    assert answered(list(log.reading.raw_read(0.0, RawRead(read.call, [entry(7).data], 7)))).error == "trimmed"


def test_nothing_is_read_for_who_is_gone() -> None:
    log = Log()
    log.ask(0.0, after=2)
    client = Client()
    assert log.reading.asked(0.0, Call(Request(14, raw=True, after=5), client, 1, Nobody())) == []
    client.is_gone = True
    [answer] = log.reading.raw_read(0.0, RawRead(read_call(), [entry(3).data], 3))
    assert isinstance(answer, Answered), "and nothing more is read"


def read_call() -> Call:
    return Call(Request(14, raw=True, after=2), Client(), 1, Nobody())
