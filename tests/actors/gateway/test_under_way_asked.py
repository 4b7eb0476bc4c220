"""Calls for other nodes leave together: when as many are there as were answered, or when those do not come in time."""

from actors.gateway.under_way import FORWARD_BYTES, Asked, Forwarding, Voice
from actors.messages.call import Call
from actors.runtime.commit_delay import GATHER_FEW_S
from net.peers.messages import Forward
from quorate.protocol import Action, Request
from tests.actors.cranked import CrankedRuntime, Probe, ref


class Counted(CrankedRuntime):
    """Counts how often somebody wants to be called later."""

    def __init__(self) -> None:
        super().__init__()
        self.armed = 0

    def call_later(self, delay_s, callback):  # type: ignore[no-untyped-def]
        self.armed += 1
        return super().call_later(delay_s, callback)


class Desk:
    """An Asked whose words a probe notes."""

    def __init__(self) -> None:
        self.runtime, self.links, voice = Counted(), Probe(), Voice()
        voice.links = ref(self.links)
        self.asked = Asked(self.runtime, voice, FORWARD_BYTES)
        self._serial = 0

    def forward(self, count: int = 1, to: int = 2) -> None:
        """So many calls."""
        forwards = []
        for _ in range(count):
            self._serial += 1
            call = Call(Request(Action.PRODUCE, queue="q"), Probe(), 0, ref(Probe()))  # type: ignore[arg-type]
            forwards.append(Forwarding(to, self._serial, 1, call))
        self.asked.forward(forwards)

    @property
    def frames(self) -> list[int]:
        """How many calls were in each frame that left."""
        return [len(sent.message.calls) for sent in self.links.told if isinstance(sent.message, Forward)]


def test_nobody_is_waited_for_where_nobody_was_answered() -> None:
    desk = Desk()
    desk.forward()
    assert desk.frames == [1]


def test_calls_leave_when_as_many_are_there_as_were_answered() -> None:
    desk = Desk()
    desk.asked.answered(3)
    desk.forward()
    desk.forward()
    assert desk.frames == []
    desk.forward()
    assert desk.frames == [3]
    desk.runtime.crank(1.0)
    assert desk.frames == [3]
    assert desk.runtime.armed == 1, "nobody looks again and again meanwhile"


def test_calls_leave_in_time_whoever_does_not_come() -> None:
    desk = Desk()
    desk.asked.answered(3)
    desk.forward()
    desk.runtime.crank(GATHER_FEW_S / 2)
    assert desk.frames == []
    desk.runtime.crank(GATHER_FEW_S)
    assert desk.frames == [1]
    assert desk.runtime.armed == 1


def test_what_has_left_already_when_the_time_comes_counts_as_no_wait_in_vain() -> None:
    desk = Desk()
    desk.asked.answered(2)
    desk.forward()
    desk.asked.send()
    assert desk.frames == [1]
    desk.runtime.crank(GATHER_FEW_S * 2)
    desk.asked.answered(2)
    desk.forward()
    assert desk.frames == [1], "it is waited for the other"


def test_other_workers_of_this_node_are_told_at_once() -> None:
    desk = Desk()
    desk.asked.answered(3)
    desk.forward(to=-2)
    assert desk.frames == [1]
