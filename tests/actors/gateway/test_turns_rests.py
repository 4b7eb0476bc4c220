"""Strangers with something large wait while there is a debt, for as long as it takes, and not for ever."""

from collections import deque
from itertools import pairwise

import msgspec
import pytest
from msgspec import Raw

from actors.gateway.turns import (
    AT_ONCE,
    DONE_S_MAX,
    DONE_S_PER_ITEM,
    FORWARDED,
    HEARD_AT_ONCE,
    LOOKED_UP,
    REST_MAX_S,
    S_PER_BYTE,
    Rests,
)
from actors.messages.call import Call
from net.clients.connection import DONE_TURNS, Connection
from net.clients.connection_contract import ConnectionLimits
from net.clients.strangers_time import LONG_S, MANY, OWED_MAX_S, SHARE, SMALL_BYTES
from net.protocols.json_session import JsonSession
from quorate.protocol import DeliveredItem, DeliveredReply, Reply, Request
from tests.actors.cranked import CrankedRuntime, Probe, ref
from tests.net.clients.fake_end import FakeEnd

LARGE_SIZE = SMALL_BYTES + 1
LARGE = msgspec.json.encode({"action": 1, "queue": "q", "data": "x" * SMALL_BYTES})


class Hall(FakeEnd):
    """Several strangers' ends, and where they rest."""

    def __init__(self, took_s: float = 0.0) -> None:
        super().__init__()
        self._took_s = took_s
        self.writes_s = 0.0
        self.looks: list[tuple[Connection, int, Request]] = []
        self.runtime = CrankedRuntime()
        self.strangers = self.rests = Rests(self.runtime, self.turn)

    def write(self, data: bytes) -> None:
        super().write(data)
        self.runtime.time += self.writes_s

    def received(self, connection: Connection, order: int, request: Request) -> None:
        super().received(connection, order, request)
        self.runtime.time += self._took_s
        if request.action == 11:
            self.looks.append((connection, order, request))
            return
        connection.answer(order, request, Reply(action=request.action, code=0))

    def closed(self, connection: Connection) -> None:
        super().closed(connection)
        self.rests.closed(connection)

    def stranger(self) -> Connection:
        limits = ConnectionLimits()
        connection = Connection(self, self, JsonSession(limits.request), limits)
        connection.account.know(False)
        return connection


def test_all_are_heard_when_the_debt_is_paid_one_after_the_other() -> None:
    hall = Hall()
    hall.rests.spent(hall.stranger(), LONG_S, LARGE_SIZE, 50)
    for _ in range(5):
        hall.stranger().receive(LARGE)
    assert hall.requests == []
    hall.runtime.crank(0.1 * (1 / SHARE - 1) - 0.001)
    assert hall.requests == []
    hall.runtime.crank(0.01)
    assert [len(hall.requests), hall.rests._waiting] == [5, deque()], "each took next to nothing"


def test_what_one_takes_the_next_waits_for() -> None:
    hall = Hall(took_s=LONG_S)
    hall.rests.spent(hall.stranger(), LONG_S, LARGE_SIZE, 5)
    for _ in range(5):
        hall.stranger().receive(LARGE)
    heard: list[float] = []
    while len(heard) < 5:
        hall.runtime.crank(0.001)
        heard += [hall.runtime.time] * (len(hall.requests) - len(heard))
    gaps = [later - earlier for earlier, later in pairwise(heard)]
    assert all(LONG_S * (1 / SHARE - 1) <= gap < 6 * LONG_S / SHARE for gap in gaps), gaps


def test_those_that_come_and_go_leave_no_debt() -> None:
    """Ten thousand that connected, sent 17 KB and left had made the next one wait for 199 s."""
    hall = Hall()
    hall.rests.spent(hall.stranger(), LONG_S, LARGE_SIZE, 50)
    for _ in range(10_000):
        gone = hall.stranger()
        gone.receive(LARGE)
        gone.lost()
    hall.stranger().receive(LARGE)
    hall.runtime.crank(0.1 * (1 / SHARE - 1) + 0.001)
    assert len(hall.requests) == 1
    assert (len(hall.rests._own), hall.rests._waiting) == (0, deque())


def test_small_work_in_large_pieces_is_no_growing_debt() -> None:
    """60 pieces of 17 KB a second, which take next to nothing, waited 120 s after ten minutes."""
    hall = Hall()
    hall.rests.spent(hall.stranger(), LONG_S, LARGE_SIZE, 10)
    for count in range(600):
        hall.stranger().receive(LARGE)
        hall.runtime.crank(1 / 60)
        assert len(hall.requests) >= count - 60
    hall.runtime.crank(1.0)
    assert len(hall.requests) == 600


def test_who_would_wait_too_long_is_refused() -> None:
    hall = Hall()
    hall.rests.spent(hall.stranger(), LONG_S, LARGE_SIZE, REST_MAX_S / LONG_S)
    connection = hall.stranger()
    connection.receive(LARGE)
    [reply] = [msgspec.json.decode(one) for one in hall.sent]
    assert reply["error"] == "overloaded"
    assert hall.requests == []
    assert connection.account.bytes == 0


def test_a_long_reply_that_would_wait_too_long_is_refused() -> None:
    hall = Hall()
    hall.rests.spent(hall.stranger(), LONG_S, LARGE_SIZE, REST_MAX_S / LONG_S)
    connection = hall.stranger()
    connection.receive(msgspec.json.encode({"action": 11, "queue": "q"}))
    assert b"overloaded" in hall.sent[0]
    assert hall.requests == []
    assert connection.account.bytes == 0


LOOK = msgspec.json.encode({"action": 11, "queue": "q"})


def test_of_those_in_line_one_long_reply_is_looked_up_at_a_time() -> None:
    """What it takes is known when it is there: fifty at once were 200 MB, and seconds for everybody else."""
    hall = Hall()
    hall.rests.spent(hall.stranger(), LONG_S, LARGE_SIZE, 5)
    for _ in range(3):
        hall.stranger().receive(LOOK)
    for expected in (1, 2, 3):
        hall.runtime.crank(1.0)
        assert len(hall.requests) == expected
        connection, order, request = hall.looks[-1]
        connection.answer(order, request, Reply(action=11, code=0))
        hall.rests.spent(connection, LONG_S, LARGE_SIZE, 10)


def looked_up(hall: Hall, size: int) -> None:
    """The oldest long reply that is not there yet is, of so many bytes; another node had it."""
    connection, order, request = hall.looks.pop(0)
    call = Call(request, connection, order, ref(Probe()))
    call.was_forwarded = True
    message = DeliveredItem(msg_id=1, data=Raw(b"1" * size), queue="q", deliveries=1)
    hall.rests.answer(connection, call, DeliveredReply(action=11, code=0, messages=[message]))


def test_who_leaves_while_its_long_reply_is_looked_up_pays_for_it_like_the_others() -> None:
    """To ask, leave, and ask anew was a way around: the reply came all the same, and cost the node as much."""
    hall = Hall()
    hall.rests.spent(hall.stranger(), LONG_S, LARGE_SIZE, 5)
    for _ in range(2):
        hall.stranger().receive(LOOK)
    hall.runtime.crank(1.0)
    assert len(hall.requests) == 1
    hall.looks[0][0].lost()
    hall.runtime.crank(1.0)
    assert len(hall.requests) == 1, "it is still looked up"
    looked_up(hall, size := 500_000)
    owed_s = FORWARDED * size * S_PER_BYTE * (1 / SHARE - 1)
    assert hall.rests._time.owed(hall.runtime.time) == pytest.approx(owed_s, rel=0.01)
    hall.runtime.crank(owed_s - 0.001)
    assert len(hall.requests) == 1
    hall.runtime.crank(0.01)
    assert len(hall.requests) == 2


@pytest.mark.parametrize(("size", "at_once"), [(10, AT_ONCE), (SMALL_BYTES + 1, 1)])
def test_few_long_replies_are_looked_up_before_it_is_known_what_they_take(size: int, at_once: int) -> None:
    """Also where nobody owes anything: twenty that were asked for at once held up a follower for a quarter second."""
    hall = Hall()
    hall.stranger().receive(LOOK)
    looked_up(hall, size)
    for _ in range(3 * AT_ONCE):
        hall.stranger().receive(LOOK)
    assert len(hall.requests) == 1 + at_once
    while hall.looks:
        assert len(hall.looks) <= at_once
        looked_up(hall, 10)
        hall.runtime.crank(0.001)
    assert len(hall.requests) == 1 + 3 * AT_ONCE, "all are heard"


def test_what_is_refused_at_once_is_not_waited_for() -> None:
    hall = Refusing()
    for count in range(3 * AT_ONCE):
        hall.stranger().receive(LOOK)
        assert len(hall.requests) == count + 1


def test_a_reply_that_does_not_come_holds_up_nobody_for_ever() -> None:
    hall = Hall()
    hall.rests.spent(hall.stranger(), LONG_S, LARGE_SIZE, 5)
    for _ in range(2):
        hall.stranger().receive(LOOK)
    hall.runtime.crank(REST_MAX_S + 1.0)
    assert len(hall.requests) == 2


@pytest.mark.parametrize(("was_forwarded", "turns"), [(False, LOOKED_UP), (True, FORWARDED)])
def test_a_large_reply_is_reckoned_however_quickly_it_was_there_and_a_small_one_is_not(
    was_forwarded: bool, turns: float
) -> None:
    hall = Hall()
    connection = hall.stranger()
    for size, took_s in ((10, 0.0), (SMALL_BYTES + 1, LONG_S)):
        connection.receive(LOOK)
        asker, order, request = hall.looks[-1]
        call = Call(request, asker, order, ref(Probe()))
        call.was_forwarded = was_forwarded
        hall.writes_s = took_s
        hall.rests.answer(connection, call, Reply(action=11, code=0, reason="x" * size))
        owed_s = hall.rests._time.owed(hall.runtime.time)
        assert owed_s == pytest.approx(turns * took_s * (1 / SHARE - 1))


class Refusing(Hall):
    """What it is asked for is refused at once."""

    def received(self, connection: Connection, order: int, request: Request) -> None:
        self.requests.append((order, request))
        self.runtime.time += LONG_S / 4
        connection.answer(order, request, Reply(action=request.action, code=1, error="not_allowed"))


def test_many_that_waited_with_little_are_heard_in_turns() -> None:
    """What is small costs nothing; a thousand who had waited were heard in one turn."""
    hall = Refusing()
    hall.rests.spent(hall.stranger(), LONG_S, LARGE_SIZE, 5)
    for _ in range(100):
        hall.stranger().receive(LOOK)
    assert hall.requests == []
    hall.runtime.time += 1.0
    hall.rests._next()
    assert 1 <= len(hall.requests) <= 6
    for _ in range(100):
        hall.runtime.crank(0.001)
    assert len(hall.requests) == 100


def test_few_are_heard_in_one_turn_so_that_what_they_sent_meanwhile_is_reckoned_first() -> None:
    hall = Hall()
    hall.rests.spent(hall.stranger(), LONG_S, LARGE_SIZE, 5)
    for _ in range(3 * HEARD_AT_ONCE):
        hall.stranger().receive(LARGE)
    hall.runtime.time += 1.0
    hall.rests._next()
    assert len(hall.requests) == HEARD_AT_ONCE
    hall.runtime.crank(0.1)
    assert len(hall.requests) == 3 * HEARD_AT_ONCE


def test_who_has_rested_for_what_he_took_waits_in_line_like_the_others() -> None:
    """Forty that had each rested a little for something small asked for forty long replies at once."""
    hall = Hall()
    strangers = [hall.stranger() for _ in range(40)]
    for one in strangers:
        hall.rests.spent(one, LONG_S, LARGE_SIZE, 2)
        hall.runtime.crank(0.05)
    hall.runtime.crank(1.0)
    for one in strangers:
        one.receive(LOOK)
    assert len(hall.looks) == AT_ONCE


def test_two_that_ask_for_one_long_reply_after_the_other_do_not_keep_others_out() -> None:
    """The rest of each ended while the other's debt ran, and the line was heard only when there was none."""
    hall = Hall()
    regulars = {hall.stranger(): True, hall.stranger(): True}
    third = hall.stranger()
    for step in range(2000):
        for one, wants in regulars.items():
            if wants and not one._reading.is_paused:
                regulars[one] = False
                one.receive(LOOK)
        if step == 10:
            third.receive(LOOK)
        hall.runtime.crank(0.005)
        while hall.looks:
            asker = hall.looks[0][0]
            if asker is third:
                return
            hall.writes_s = 0.004
            looked_up(hall, 200_000)
            hall.writes_s = 0.0
            regulars[asker] = True
    pytest.fail("the third was not heard within 10 s")


def test_who_shows_a_token_does_not_wait_for_what_strangers_owe() -> None:
    hall = Hall()
    one = hall.stranger()
    hall.rests.spent(one, LONG_S, LARGE_SIZE, 500)
    one.receive(b'{"action":4,"queue":"q"}', in_time=False)
    one.account.know(True)
    hall.rests.is_known(one)
    one.end_turn()
    assert [request.action for _, request in hall.requests] == [4]
    hall.rests.spent(one, LONG_S, LARGE_SIZE, 500)
    one.receive(b'{"action":4,"queue":"q"}')
    assert len(hall.requests) == 2


def test_what_is_small_and_was_cut_costs_its_slice_alone() -> None:
    """Each piece of a crowd's small requests that took more than 1 ms was a debt; soon all rested for minutes."""
    hall = Hall(took_s=0.01)
    for _ in range(1000):
        one = hall.stranger()
        one.receive(b'{"action":4,"queue":"q"}', in_time=False)
        hall.rests.end_turn(one)
    assert len(hall.requests) == 1000
    assert hall.rests._time.owed(hall.runtime.time) == 0.0


def test_what_strangers_owe_is_forgotten_beyond_a_bound() -> None:
    hall = Hall()
    for _ in range(100):
        hall.rests.spent(hall.stranger(), 1.0, LARGE_SIZE)
    assert hall.rests._time.owed(hall.runtime.time) == OWED_MAX_S


class Keeping(Hall):
    """It answers nothing."""

    def received(self, connection: Connection, order: int, request: Request) -> None:
        self.looks.append((connection, order, request))


def test_who_is_gone_and_would_be_told_of_nothing_costs_next_to_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thirty thousand consumers that left at one moment were 0.2 s, and everybody else waited for as long."""
    hall = Keeping()
    connection = hall.stranger()
    connection.receive(b'{"action":2,"queue":"q","wait":1,"seq":1}{"action":2,"queue":"q","wait":1,"seq":2}')
    connection.lost()
    reckoned: list[float] = []

    def worked() -> float:
        reckoned.append(0.0)
        return 0.0

    monkeypatch.setattr(hall.runtime, "worked", worked)
    replies = (Reply(action=2, code=0), Reply(action=2, code=0, data=Raw(b"1")))
    for (_, order, request), reply in zip(hall.looks, replies, strict=True):
        hall.rests.answer(connection, Call(request, connection, order, ref(Probe())), reply)
        assert len(reckoned) == (reply.data is not None)
    assert connection.open.count == 0


def batch(count: int) -> bytes:
    return msgspec.json.encode({"action": 1, "queue": "q", "messages": [{"data": 1}] * count})


@pytest.mark.parametrize(("count", "cost_s"), [(MANY + 1, (MANY + 1) * DONE_S_PER_ITEM), (1000, DONE_S_MAX)])
def test_requests_about_many_messages_wait_for_each_other_while_others_ask(count: int, cost_s: float) -> None:
    """A thousand messages in 11 kB are small: 250 of them at once made others wait ten times as long on three nodes."""
    hall = Hall()
    known = Connection(hall, hall, JsonSession(ConnectionLimits().request), ConnectionLimits())
    known.receive(b'{"action":8}')
    assert hall.turn.may_hear_stranger()
    for _ in range(40):
        hall.stranger().receive(batch(count))
    owed_s = DONE_TURNS * cost_s * (1 / SHARE - 1)
    begun = len(hall.requests) - 1
    assert (begun - 1) * owed_s <= 0.005 < begun * owed_s, "what is owed is more than a quantum"
    hall.runtime.crank(40 * owed_s)
    assert len(hall.requests) == 1 + 40, "all are done in their turn"


@pytest.mark.parametrize(("count", "others_ask"), [(1000, False), (MANY, True)])
def test_requests_about_many_messages_wait_for_nobody_where_they_are_alone_or_few(count: int, others_ask: bool) -> None:
    hall = Hall()
    if others_ask:
        known = Connection(hall, hall, JsonSession(ConnectionLimits().request), ConnectionLimits())
        known.receive(b'{"action":8}')
    assert hall.turn.may_hear_stranger()
    for _ in range(40):
        hall.stranger().receive(batch(count))
    assert len(hall.requests) == 40 + others_ask
