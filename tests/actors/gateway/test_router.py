"""The Router as a host: what goes to the owner, what to other nodes, what comes back, and each of it once."""

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from actors.gateway.remote_clients import ANSWER_S, RemoteClient
from actors.gateway.router import Router
from actors.gateway.routing import Routing
from actors.gateway.sharding import Sharding
from actors.messages.call import Call
from actors.messages.calls import Answered, ClientGone, Execute, Returned, RightsChanged, StrangersForwarded
from actors.messages.lifecycle import Stop
from actors.messages.log import Drain, Undrain
from actors.messages.peers import CutPeer, LeaderChanged, PeerBehind, PeerDown, PeerSaid, PeerUnheard, PeerUp
from actors.messages.rights import ANONYMOUS, EVERY_RIGHT, Principal, Rights
from net.peers import forwarding
from net.peers.forwarding import packed_call, packed_reply
from net.peers.messages import (
    PEER_MINOR,
    ClientLeft,
    Forward,
    ForwardAnswers,
    ForwardReturned,
    Hello,
    StillHere,
    StillThere,
)
from quorate.protocol import Action, Reply, Request
from storage.records import BASE_LEVEL, LEVEL
from tests.actors.cranked import CrankedRuntime, Probe, ref

HELLO = Hello(1, 0, 1, 2, 1, 9, 22, "h", 1, "h", 2, LEVEL)


class Asker:
    """A client of this node."""

    has_left = is_gone = False

    has_ended = False

    def answer(self, order: int, request: Request, reply: Reply) -> None:
        """Not by the Router."""


class Host:
    """The Router of node 1, with probes around it; node 2 is linked."""

    def __init__(self, *, forwards: bool = True, virtual: dict[str, list[str]] | None = None) -> None:
        self.runtime = CrankedRuntime()
        self.owner, self.peers, self.asker, self.client = Probe(), Probe(), Probe(), Asker()
        routing = Routing(forwards=forwards, hold_s=2.0)
        self.actor = Router(self.runtime, ref(self.owner), Sharding(1, 0), [routing], virtual or {}, forward_bytes=2000)
        self.actor.attach(ref(self.peers))
        self.actor.begin()
        self.tell(PeerUp(2, HELLO))

    def tell(self, *messages: Any) -> None:
        for message in messages:
            self.actor.actor_ref.tell(message)
        self.runtime.crank()

    def ask(self, *requests: Request) -> None:
        self.tell(Execute([Call(request, self.client, n, self.asker) for n, request in enumerate(requests)]))

    def said(self, kind: type) -> list[Any]:
        """What was said to other nodes since."""
        found = [sent.message for sent in self.peers.told if isinstance(sent.message, kind)]
        self.peers.told = [sent for sent in self.peers.told if not isinstance(sent.message, kind)]
        return found

    def forward(self, *serials: int, session: int = 7, client: int = 0) -> None:
        """Node 2 forwards produces."""
        calls = [packed_call(serial, client, 1 << 20, produce()) for serial in serials]
        self.tell(PeerSaid(2, Forward(session, calls)))

    def executed(self) -> list[Call]:
        """What the owner was to do since."""
        return [call for message in self.owner.take(Execute) for call in message.calls]

    def replies(self) -> list[Reply]:
        """What this node's client was answered since."""
        return [reply for message in self.asker.take(Answered) for _, reply in message.answers]


def produce(data: bytes = b'"x"') -> Request:
    return Request(Action.PRODUCE, queue="q", data=msgspec.Raw(data))


def leading() -> Host:
    host = Host()
    host.tell(LeaderChanged(1, True, "h", 1))
    return host


def following(*, forwards: bool = True) -> Host:
    host = Host(forwards=forwards)
    host.tell(LeaderChanged(2, False, "h", 5))
    return host


def test_a_leader_does_what_it_is_asked_itself() -> None:
    host = leading()
    host.ask(produce())
    assert len(host.executed()) == 1
    assert host.said(Forward) == []


def test_a_follower_forwards_and_passes_the_answer_on() -> None:
    host = following()
    host.ask(produce(), produce())
    host.runtime.crank(0.1)
    serials = [call.serial for message in host.said(Forward) for call in message.calls]
    assert len(serials) == 2
    assert host.executed() == []
    done = packed_reply(Reply(action=1, code=0, queue="q", msg_id=1024))
    host.tell(PeerSaid(2, ForwardAnswers([(serials[1], done)])))
    assert [reply.msg_id for reply in host.replies()] == [1024]
    host.tell(PeerSaid(2, ForwardAnswers([(serials[1], done)])))
    assert host.replies() == [], "one request has one answer"


def test_the_listener_hears_how_many_requests_of_strangers_were_forwarded() -> None:
    host, listener = following(), Probe()
    host.actor.serve(ref(listener))
    stranger = Principal(ANONYMOUS, EVERY_RIGHT)
    calls = [Call(produce(), host.client, n, host.asker, principal=stranger) for n in range(3)]
    host.tell(Execute([*calls, Call(produce(), host.client, 3, host.asker)]))
    assert listener.take(StrangersForwarded) == [StrangersForwarded(3)]
    host.ask(produce())
    assert listener.take(StrangersForwarded) == []


def test_a_follower_that_does_not_forward_says_where_the_leader_is() -> None:
    host = following(forwards=False)
    host.ask(produce())
    reply: Any = host.replies()[0]
    assert (reply.error, reply.leader_host, reply.leader_port) == ("redirect", "h", 5)


def test_without_a_leader_requests_wait_for_one() -> None:
    host = Host()
    host.ask(produce())
    assert (host.executed(), host.replies()) == ([], [])
    host.tell(LeaderChanged(1, True, "h", 1))
    assert len(host.executed()) == 1


def test_who_waited_for_a_leader_in_vain_is_told_so() -> None:
    host = Host()
    host.ask(produce())
    host.runtime.crank(3.0)
    assert [reply.error for reply in host.replies()] == ["no_leader"]


def test_much_to_forward_goes_in_several_frames_in_order() -> None:
    host = following()
    host.ask(*[produce(b'"' + b"x" * 600 + b'"') for _ in range(10)])
    host.runtime.crank(0.1)
    frames = host.said(Forward)
    serials = [call.serial for frame in frames for call in frame.calls]
    assert len(frames) > 3
    assert serials == sorted(serials)
    assert len(serials) == 10


def test_what_another_node_forwards_is_done_once() -> None:
    host = leading()
    host.forward(1, 2)
    host.forward(2, 3)
    assert [call.order for call in host.executed()] == [1, 2, 3]
    host.forward(1, session=8)
    assert [call.order for call in host.executed()] == [1], "it has started again, and counts anew"


def test_what_is_forwarded_to_a_node_that_does_not_lead_goes_back() -> None:
    host = following()
    host.forward(4, 5)
    assert [message.serials for message in host.said(ForwardReturned)] == [[4, 5]]
    assert host.executed() == []


def test_answers_to_other_nodes_clients_go_back_to_their_node() -> None:
    host = leading()
    host.forward(1)
    (call,) = host.executed()
    assert isinstance(call.client, RemoteClient)
    host.tell(Answered([(call, Reply(action=1, code=0, queue="q", msg_id=1024))]))
    assert [serial for message in host.said(ForwardAnswers) for serial, _ in message.answers] == [1]


def test_a_forwarded_call_that_the_owner_did_not_do_goes_back_and_an_own_one_is_routed_again() -> None:
    host = leading()
    host.forward(1)
    host.ask(produce())
    theirs, ours = host.executed()
    host.tell(LeaderChanged(2, False, "h", 5), Returned([theirs, ours]))
    host.runtime.crank(0.3)
    assert [message.serials for message in host.said(ForwardReturned)] == [[1]]
    assert sum(len(message.calls) for message in host.said(Forward)) == 1


def test_clients_of_a_node_whose_link_is_lost_are_gone() -> None:
    for lost in (PeerDown(2), PeerUnheard(2)):
        host = leading()
        host.forward(1, client=5)
        (call,) = host.executed()
        host.tell(lost)
        assert [message.client for message in host.owner.take(ClientGone)] == [call.client]
        assert call.client.is_gone


def test_a_client_that_left_its_node_is_gone_here_too() -> None:
    host = leading()
    host.forward(1, client=5)
    (call,) = host.executed()
    host.tell(PeerSaid(2, ClientLeft(6)))
    assert host.owner.take(ClientGone) == []
    host.tell(PeerSaid(2, ClientLeft(5)))
    assert [message.client for message in host.owner.take(ClientGone)] == [call.client]


def test_what_was_on_its_way_when_the_link_broke_has_an_unknown_outcome() -> None:
    host = following()
    host.ask(produce())
    host.runtime.crank(0.1)
    (frame,) = host.said(Forward)
    host.tell(PeerDown(2, last_serial=frame.calls[0].serial))
    assert [reply.error for reply in host.replies()] == ["unknown_outcome"]


def test_what_never_left_is_sent_when_there_is_a_link_again() -> None:
    host = following()
    host.ask(produce())
    host.runtime.crank(0.1)
    host.said(Forward)
    host.tell(PeerDown(2, last_serial=0))
    assert host.replies() == []
    host.tell(PeerUp(2, HELLO))
    host.runtime.crank(0.3)
    assert len(host.said(Forward)) == 1


def test_garbage_for_an_answer_cuts_the_link() -> None:
    host = following()
    host.tell(PeerSaid(2, ForwardAnswers([(1, (0, b"garbage", []))])))
    assert [cut.node_id for cut in host.peers.take(CutPeer)] == [2]


def test_while_the_lead_is_handed_over_requests_wait() -> None:
    host = leading()
    host.tell(Drain(3))
    host.ask(produce())
    assert host.executed() == []
    host.tell(Undrain())
    assert len(host.executed()) == 1


def test_the_copies_of_a_produce_to_a_virtual_queue_have_one_answer() -> None:
    host = Host(virtual={"all": ["a", "b"]})
    host.tell(LeaderChanged(1, True, "h", 1))
    host.ask(Request(Action.PRODUCE, queue="all", data=msgspec.Raw(b"1")))
    copies = host.executed()
    assert sorted(str(call.request.queue) for call in copies) == ["a", "b"]
    for n, call in enumerate(copies):
        host.tell(Answered([(call, Reply(action=1, code=0, queue=call.request.queue, msg_id=1024 + n))]))
    assert len(host.replies()) == 1


def test_a_node_that_stops_tells_the_owner_when_nothing_waits_for_others() -> None:
    host = following()
    host.ask(produce())
    host.runtime.crank(0.1)
    (frame,) = host.said(Forward)
    host.tell(Stop(ref(host.asker)))
    assert host.owner.take(Stop) == []
    host.tell(PeerSaid(2, ForwardAnswers([(frame.calls[0].serial, packed_reply(Reply(action=1, code=0)))])))
    assert len(host.owner.take(Stop)) == 1
    assert [reply.code for reply in host.replies()] == [0]


def test_an_answer_to_an_earlier_life_of_this_node_is_for_nobody() -> None:
    host = following()
    host.ask(produce())
    [frame] = host.said(Forward)
    serial, done = frame.calls[0].serial, packed_reply(Reply(action=1, code=0, msg_id=1024))
    host.tell(PeerSaid(2, ForwardAnswers([(serial, done)], frame.session + 1)))
    host.tell(PeerSaid(2, ForwardReturned([serial], frame.session + 1)))
    host.runtime.crank(0.1)
    assert host.replies() == []
    assert host.said(Forward) == []
    host.tell(PeerSaid(2, ForwardAnswers([(serial, done)], frame.session)))
    assert [reply.msg_id for reply in host.replies()] == [1024]


def test_answers_name_the_session_that_they_are_for() -> None:
    host = leading()
    host.forward(1, session=7)
    [old] = host.executed()
    host.forward(1, session=8)
    [new] = host.executed()
    for call in (old, new):
        call.reply_to.tell(Answered([(call, Reply(action=1, code=0))]))
    host.runtime.crank()
    assert [message.session for message in host.said(ForwardAnswers)] == [7, 8]
    host.tell(Returned([old]))
    assert [message.session for message in host.said(ForwardReturned)] == [7]


def leading_and_asking() -> Host:
    """Its other node knows `StillThere`."""
    host = leading()
    host.tell(PeerUp(2, Hello(1, PEER_MINOR, 1, 2, 1, 9, 22, "h", 1, "h", 2, LEVEL)))
    return host


def configure_forwarded(host: Host, *, behind: int = 0) -> None:
    calls = [packed_call(5, 3, 1 << 20, Request(Action.CONFIGURE, queue="q", max_size=5))]
    calls += [packed_call(6 + n, 3, 1 << 20, produce()) for n in range(behind)]
    calls += [packed_call(20, 4, 1 << 20, produce())]
    host.tell(PeerSaid(2, Forward(7, calls)))


def test_what_sets_something_is_done_when_its_client_is_known_to_be_there_with_what_that_asked_behind_it() -> None:
    host = leading_and_asking()
    configure_forwarded(host, behind=2)
    assert [call.order for call in host.executed()] == [20], "others wait for nothing"
    assert host.said(StillThere) == [StillThere([5, 6, 7], 7)]
    host.runtime.crank(ANSWER_S / 2)
    host.tell(PeerSaid(2, StillHere([5, 6, 7], 7)))
    assert [call.order for call in host.executed()] == [5, 6, 7]
    host.runtime.crank(ANSWER_S * 2)
    assert host.said(ForwardReturned) == []


def test_what_sets_something_is_not_done_late_whatever_lay_where() -> None:
    """A configure lay between two nodes while its client gave up, and was done behind a later one."""
    host = leading_and_asking()
    configure_forwarded(host)
    host.executed()
    host.runtime.crank(ANSWER_S * 1.2)
    assert host.said(ForwardReturned) == [ForwardReturned([5], 7)]
    host.tell(PeerSaid(2, StillHere([5], 7)))
    assert host.executed() == []


def test_a_node_that_forwarded_says_which_of_its_clients_are_there() -> None:
    host = following()
    gone = Asker()
    there = Call(Request(Action.CONFIGURE, queue="q"), host.client, 0, host.asker)
    left = Call(Request(Action.CONFIGURE, queue="q"), gone, 1, host.asker)
    host.tell(Execute([there, left]))
    host.runtime.crank(0.1)
    serials = [one.serial for message in host.said(Forward) for one in message.calls]
    gone.is_gone = True
    host.tell(PeerSaid(2, StillThere(serials, host.actor._asked.session)))
    assert host.said(StillHere) == [StillHere(serials[:1], host.actor._asked.session)]


def test_nothing_with_a_long_answer_is_done_for_a_node_that_takes_answers_too_slowly() -> None:
    host = leading()
    host.tell(PeerBehind(2, True))
    calls = [packed_call(1, 0, 1 << 20, Request(Action.PEEK, queue="q")), packed_call(2, 0, 1 << 20, produce())]
    host.tell(PeerSaid(2, Forward(7, calls)))
    assert [call.order for call in host.executed()] == [2]
    assert host.said(ForwardReturned) == [ForwardReturned([1], 7)]
    host.tell(PeerBehind(2, False), PeerSaid(2, Forward(7, [packed_call(3, 0, 1 << 20, calls[0].request)])))
    assert [call.order for call in host.executed()] == [3]


def test_a_client_whose_rights_have_changed_leaves_behind_what_it_has_asked() -> None:
    """What waits a moment for more, to leave with it, goes before the word that nobody waits for it any more."""
    host = following()
    host.ask(*[produce()] * 8)
    host.runtime.crank(0.1)
    serials = [call.serial for message in host.said(Forward) for call in message.calls]
    done = packed_reply(Reply(action=1, code=0, queue="q", msg_id=1024))
    host.tell(
        PeerSaid(2, ForwardAnswers([(serial, done) for serial in serials])),  # so more are expected, and waited for
        Execute([Call(Request(Action.CONSUME, queue="q", wait=9.0), host.client, 0, host.asker)]),
        RightsChanged(host.client, Principal("w", Rights({}))),
    )
    kinds = [type(sent.message) for sent in host.peers.told]
    assert kinds == [Forward, ClientLeft]


def waits(seq: int) -> Request:
    return Request(Action.CONSUME, queue="q", wait=60.0, seq=seq)


def test_a_cancelled_wait_is_looked_for_where_it_was_asked() -> None:
    host = following()
    host.tell(PeerUp(2, replace(HELLO, level=LEVEL)))
    host.ask(waits(7), waits(8), Request(Action.CANCEL, seq=7))
    [forward] = host.said(Forward)
    assert [(one.request.action, one.request.seq) for one in forward.calls] == [(2, 7), (2, 8), (19, 7)]
    assert len({one.client for one in forward.calls}) == 1, "as the client that the leader knows it by"
    host.ask(Request(Action.CANCEL, seq=9))
    assert [reply.cancelled for reply in host.replies()] == [0], "nobody is asked for what was not asked there"
    assert host.said(Forward) == []


def test_a_cancelled_wait_that_is_held_is_answered_here() -> None:
    host = Host()
    host.ask(waits(7), produce(), Request(Action.CANCEL, seq=7))
    assert [(reply.action, reply.msg_id, reply.cancelled) for reply in host.replies()] == [
        (2, None, None),
        (19, None, 1),
    ]
    host.tell(LeaderChanged(1, True, "h", 1))
    assert [call.request.action for call in host.executed()] == [1]


def test_a_leader_of_an_older_version_is_asked_for_nothing_that_it_does_not_know(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for field in ("full", "headers", "delivery"):  # as if these were later than that version
        monkeypatch.setitem(forwarding.REQUEST_SINCE, field, LEVEL)
    host = following()
    host.tell(PeerUp(2, replace(HELLO, level=BASE_LEVEL)))
    later = [replace(waits(7), full=True), replace(produce(), headers={"a": "b"})]
    host.ask(*later, Request(Action.CONFIRM, msg_id=1024, delivery=1), waits(8))
    assert [reply.error for reply in host.replies()] == ["not_supported"] * 3
    assert [one.request.seq for one in host.said(Forward)[0].calls] == [8]


def test_a_wait_that_comes_back_after_it_was_cancelled_waits_no_more() -> None:
    host = following()
    host.tell(PeerUp(2, replace(HELLO, level=LEVEL)))
    host.ask(waits(7))
    [serial] = [one.serial for one in host.said(Forward)[0].calls]
    host.ask(Request(Action.CANCEL, seq=7))
    host.tell(LeaderChanged(1, True, "h", 1), PeerSaid(2, ForwardReturned([serial])))
    host.runtime.crank(0.3)
    [again] = host.executed()
    assert again.request.seq == 7
    assert again.request.wait is not None
    assert again.request.wait < 0.01
