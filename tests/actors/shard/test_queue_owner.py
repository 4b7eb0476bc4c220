"""The owner as a host: what it tells whom, and in which order, as it leads, hands over, is deposed and stops."""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec import Raw

from actors.messages.call import Call
from actors.messages.calls import Answered, Execute, Returned, StatusAsked
from actors.messages.checkpoints import DescribeHead, HeadDescribed, ReadersMoved
from actors.messages.lifecycle import Stop
from actors.messages.log import (
    Append,
    Apply,
    Deposed,
    Drain,
    Drained,
    LogAdvanced,
    LogCut,
    Promoted,
    Propose,
    ReloadNeeded,
    StateDropped,
    StateGone,
    StateLoaded,
    Undrain,
)
from actors.messages.peers import LeaderChanged, MembersChanged
from actors.queues.queue_admin import CLEAR_CHUNK
from actors.shard.appending import AppendingLimits
from actors.shard.leftovers import DROP_MAX, LET_GO_MAX
from actors.shard.node_view import Limits, NodeView
from actors.shard.queue_owner import OwnerSettings, QueueOwner
from actors.streams.machines import shard_machines
from quorate.protocol import Action, ProduceItem, Reply, Request
from storage.entry import StoredEntry
from storage.entry_codec import decode, encode
from storage.records import LEVEL, Lead, Member, Members
from storage.state import ShardState
from storage.stretches import Stretch
from tests.actors.cranked import CrankedRuntime, Probe, ref
from tests.actors.queues.shard import delivery_of


def advanced(committed: int, **changed: Any) -> LogAdvanced:
    """The log is durable and committed up to there."""
    values: dict[str, Any] = {"durable": committed, "leased_until": 1e9, "confirmed_at": 1e9, "disk_full": None}
    values |= {"replicas": (committed,), "tail_bytes": 0, "room_bytes": 1e9, "trimmed": 0, **changed}
    return LogAdvanced(committed=committed, **values)


class Owner:
    """An owner with probes around it."""

    has_left = is_gone = False

    has_ended = False

    def __init__(self, **settings: Any) -> None:
        self.runtime = CrankedRuntime()
        self.replicator, self.checkpointer, self.router, self.asker = Probe(), Probe(), Probe(), Probe()
        self.reader = Probe()
        appending = settings.pop("appending", AppendingLimits(writes_max=1))
        limits = settings.pop("limits", Limits())
        owner_settings = OwnerSettings(appending, shard_machines, **settings)
        self.actor = QueueOwner(self.runtime, ShardState(), limits, NodeView(), owner_settings)
        self.actor.attach(ref(self.replicator), ref(self.checkpointer), ref(self.router), ref(self.reader))
        self.actor.begin()
        self.crank()

    def crank(self, seconds: float = 0.0) -> None:
        self.runtime.crank(seconds)

    def tell(self, *messages: Any) -> None:
        """Send, and let everything follow that follows at once."""
        for message in messages:
            self.actor.actor_ref.tell(message)
        self.crank()

    def ask(self, action: int, **fields: Any) -> None:
        request = Request(action, **fields)
        self.tell(Execute([Call(request, self, 0, self.asker)]))

    def answer(self, order: int, request: Request, reply: Reply) -> None:
        """As a client."""

    def replies(self) -> list[Reply]:
        """What was answered since."""
        return [reply for message in self.asker.take(Answered) for _, reply in message.answers]

    def appended(self) -> list[Any]:
        """The records that were sent to the log since."""
        entries = [entry for message in self.replicator.take(Append) for entry in message.entries]
        return [record for entry in entries for record in decode(entry.data, "test").records]

    def advance(self, committed: int, **changed: Any) -> None:
        """The log is durable and committed up to there."""
        self.tell(advanced(committed, **changed))


def leading(**settings: Any) -> Owner:
    owner = Owner(**settings)
    owner.tell(Promoted(5, []))
    assert owner.appended() == [Lead("", 1)]
    owner.advance(1)
    return owner


def produce(owner: Owner, text: bytes = b"1", queue: str = "q", **fields: Any) -> None:
    from msgspec import Raw

    owner.ask(Action.PRODUCE, queue=queue, data=Raw(text), **fields)


def test_requests_wait_until_the_own_first_record_is_committed() -> None:
    owner = Owner()
    owner.tell(Promoted(5, []))
    produce(owner)
    assert owner.appended() == [Lead("", 1)]
    owner.advance(1)
    assert [record.data for record in owner.appended()] == [b"1"]
    assert owner.replies() == []
    owner.advance(2)
    assert [reply.msg_id for reply in owner.replies()] == [2048]


def test_a_follower_gives_requests_back_and_answers_what_is_about_it() -> None:
    owner = Owner()
    produce(owner)
    assert [len(message.calls) for message in owner.router.take(Returned)] == [1]
    owner.ask(Action.NODE_STATUS)
    assert [message.shard["messages"] for message in owner.replicator.take(StatusAsked)] == [0]
    owner.tell(LeaderChanged(3, False, "c", 33))
    owner.ask(Action.LEADER)
    assert [getattr(reply, "leader_host", "") for reply in owner.replies()] == ["c"]


@pytest.mark.parametrize("is_in_log", [True, False])
def test_who_waited_here_waits_elsewhere_for_what_is_left_of_its_time(is_in_log: bool) -> None:
    """By the clock of the leader that it waited for: the next state knows only when its last record was made."""
    owner = leading()
    owner.crank(7200.0)
    owner.ask(Action.CONSUME, queue="q", wait=60.0)
    owner.crank(20.0)
    if not is_in_log:
        produce(owner, queue="p")
    owner.tell(Deposed(1, 1, 2))
    owner.crank(0.5)
    [returned] = [call for message in owner.router.take(Returned) for call in message.calls]
    assert returned.request.wait == pytest.approx(40.0)


def test_who_waited_for_a_list_is_given_back_when_the_lead_is_lost() -> None:
    owner = leading()
    state = owner.actor._ledger.state
    for number in range(20_000):
        state.queue(f"q{number}")
    owner.actor.actor_ref.tell(Execute([Call(Request(7, pattern="none*"), owner, 0, owner.asker)]))
    owner.actor.actor_ref.tell(Deposed(1, 1, 2))
    owner.crank()
    assert [call.request.action for message in owner.router.take(Returned) for call in message.calls] == [7]
    assert owner.replies() == []


def test_it_is_said_who_reads_the_log_before_what_may_go_of_it() -> None:
    """Both leave at the same commit, and the Checkpointer may have all by then that the second rests on."""
    owner = leading()
    owner.checkpointer.take(ReadersMoved)
    state = owner.actor._ledger.state
    state.stretches._full.append(Stretch(0, 1, 1, range(1, 5), [], []))
    owner.actor._rows.readers = None
    owner.actor.actor_ref.tell(DescribeHead(0, 1))
    owner.crank()
    assert [type(one) for one in owner.checkpointer.take(ReadersMoved, HeadDescribed)] == [ReadersMoved, HeadDescribed]


def test_what_is_described_in_pieces_waits_for_the_fresh_state_and_turns_nobody_round() -> None:
    owner = leading()
    stretches = owner.actor._ledger.state.stretches
    stretches._full.append(Stretch(0, 1, 1, range(1, 5001), [], []))
    owner.actor.actor_ref.tell(DescribeHead(0, 1))
    owner.actor.actor_ref.tell(Execute([Call(Request(1, queue="p", data=Raw(b"1")), owner, 0, owner.asker)]))
    owner.actor.actor_ref.tell(Deposed(1, 1, 2))
    turns = 0
    go_on = owner.actor._continue

    def counted() -> None:
        nonlocal turns
        turns += 1
        assert turns < 100, "it calls itself without rest"
        go_on()

    owner.actor._continue = counted  # type: ignore[method-assign]
    owner.crank()
    assert not owner.checkpointer.take(HeadDescribed)
    owner.tell(StateLoaded(ShardState()))
    owner.crank()
    [described] = owner.checkpointer.take(HeadDescribed)
    assert described.trim is None, "of the fresh state, which has no stretch"


def test_what_the_other_disks_have_committed_is_no_more_under_way() -> None:
    """A leader whose own disk does not answer goes on: two appends are under way at most."""
    owner = leading()
    for number in range(4):
        produce(owner)
        owner.advance(number + 2, durable=1)
    assert len([record for record in owner.appended() if not isinstance(record, Lead)]) == 4


def test_what_a_follower_applies_it_shows() -> None:
    leader = leading()
    produce(leader)
    entries = [entry for message in leader.replicator.take(Append) for entry in message.entries]
    follower = Owner()
    first = leading_entry(follower)
    follower.tell(Apply([first, *entries]))
    follower.ask(Action.NODE_MONITOR, queue="q")
    assert [getattr(reply, "size", 0) for reply in follower.replies()] == [1]


def leading_entry(owner: Owner) -> Any:
    return StoredEntry(1, 1, 5, encode(5, 1, owner.runtime.now(), [Lead("", 1)]))


def test_deposed_it_says_of_each_open_request_what_is_known() -> None:
    owner = leading()
    produce(owner, b'"sent"')
    produce(owner, b'"not sent"')
    assert len(owner.appended()) == 1, "one entry at a time"
    owner.tell(Deposed(log_end=2, committed=1, leader=3))
    assert [reply.error for reply in owner.replies()] == ["unknown_outcome"]
    assert [call.request.action for message in owner.router.take(Returned) for call in message.calls] == [1]
    assert owner.replicator.take(ReloadNeeded), "its state holds a record that never got into the log"
    owner.tell(StateDropped())
    assert len(owner.replicator.take(StateGone)) == 1
    owner.ask(Action.NODE_LIST)
    assert [reply.error for reply in owner.replies()] == ["no_leader"]
    owner.tell(StateLoaded(ShardState()))
    owner.ask(Action.NODE_LIST)
    assert [reply.code for reply in owner.replies()] == [0]


def one_of_three(**settings: Any) -> Owner:
    """It leads three nodes, and has produced a message that is committed."""
    owner = Owner(**settings)
    owner.tell(MembersChanged(3, 3, LEVEL), Promoted(5, []))
    owner.advance(1)
    produce(owner, b'"committed"')
    owner.advance(2)
    owner.replies()
    return owner


def texts(owner: Owner) -> list[bytes]:
    return [message.data for message in owner.actor._ledger.state.messages.values()]


def test_deposed_it_takes_back_what_never_got_into_the_log() -> None:
    owner = one_of_three()
    produce(owner, b'"sent"')
    produce(owner, b'"not sent"')
    owner.tell(Deposed(log_end=3, committed=2, leader=3))
    assert not owner.replicator.take(ReloadNeeded)
    assert texts(owner) == [b'"committed"', b'"sent"']
    owner.tell(LogCut(2))
    assert not owner.replicator.take(ReloadNeeded)
    assert texts(owner) == [b'"committed"']
    owner.ask(Action.NODE_LIST)
    assert [reply.code for reply in owner.replies() if reply.action == 107] == [0], "and it is a follower like others"


def test_much_is_taken_back_in_pieces_and_what_comes_meanwhile_waits() -> None:
    owner = one_of_three(undo_piece=1)
    produce(owner, b'"sent"')
    for _ in range(5):
        produce(owner, b'"not sent"')
    turns: list[list[bytes]] = []
    call_later = owner.runtime.call_later

    def noted(delay_s: float, callback: Callable[[], None]) -> Any:
        turns.append(texts(owner))
        return call_later(delay_s, callback)

    owner.runtime.call_later = noted  # type: ignore[method-assign]  # the test looks between two turns
    for message in (Deposed(log_end=3, committed=2, leader=3), LogCut(2), Promoted(7, [])):
        owner.actor.actor_ref.tell(message)
    owner.ask(Action.CONSUME, queue="q", retry=30)
    owner.crank()
    assert [len(one) for one in turns][:5] == [6, 5, 4, 3, 2], "one message more is gone in each turn"
    assert texts(owner) == [b'"committed"']
    assert not owner.replicator.take(ReloadNeeded)
    assert owner.actor._stage.leads, "what waited came in its order"
    owner.actor._ledger.state.check()
    owner.advance(3)
    owner.crank()
    assert [type(record).__name__ for record in owner.appended()][-1] == "Take"


def test_a_leader_whose_clock_was_set_back_while_it_did_not_lead_delivers_nothing_early() -> None:
    """What it had seen come due stands among what is ready, and no record says so (simulator, seed 900098)."""
    owner = one_of_three()
    owner.ask(Action.CONSUME, queue="q", retry=30)
    produce(owner, b'"later"', delay=5, retry=30)
    owner.advance(4)
    owner.crank(6)
    owner.tell(Deposed(log_end=4, committed=4, leader=3))
    owner.runtime.set_back_s = 4.0
    owner.tell(Promoted(6, []))
    owner.advance(5)
    owner.replies()
    owner.appended()
    owner.ask(Action.CONSUME, queue="q")
    owner.crank(0.01)
    [delivered] = owner.appended()
    [later] = owner.actor._ledger.state.messages.values()
    assert delivered.msg_ids == [later.msg_id]
    assert owner.actor._ledger.now >= later.due_at - 30 >= later.produced_at + 5


def test_a_followers_own_clock_counts_for_nothing() -> None:
    """It was a day ahead while a console asked for its view, and right when the node led: the log was a day ahead."""
    owner = Owner()
    owner.tell(MembersChanged(3, 3, LEVEL))
    owner.runtime.set_back_s = -86_400.0
    owner.ask(Action.NODE_LIST)
    owner.runtime.set_back_s = 0.0
    owner.crank(5)
    owner.tell(Promoted(5, []))
    owner.advance(1)
    produce(owner, delay=3600, retry=30)
    owner.advance(2)
    [message] = owner.actor._ledger.state.messages.values()
    assert abs(message.due_at - owner.runtime.now() - 3600) < 1.0


def test_what_is_asked_about_a_node_waits_for_no_record_that_was_cut_off() -> None:
    owner = one_of_three()
    produce(owner, b'"sent"')
    owner.tell(Deposed(log_end=3, committed=2, leader=3))
    owner.replies()
    owner.ask(Action.NODE_LIST)
    assert owner.replies() == []
    owner.tell(LogCut(2))
    assert [len(getattr(reply, "queue_list", ())) for reply in owner.replies()] == [1]


def test_a_log_cut_behind_what_was_noted_makes_the_state_be_read_again() -> None:
    owner = leading()
    produce(owner)
    owner.appended()
    owner.tell(Deposed(log_end=2, committed=1, leader=3), LogCut(1))
    assert len(owner.replicator.take(ReloadNeeded)) == 1
    owner.tell(LogCut(0), Apply([leading_entry(owner)]), Promoted(6, []))
    assert not owner.replicator.take(ReloadNeeded), "a fresh one is on its way"
    assert owner.appended() == []
    owner.tell(StateDropped(), StateLoaded(ShardState()), Promoted(6, []))
    assert owner.appended() == [Lead("", 1)]


def test_there_is_no_fresh_state_before_the_old_one_is_let_go_of() -> None:
    """Two of a million messages each were half as much memory again."""
    owner = leading()
    for _ in range(3 * DROP_MAX // 1000):
        owner.ask(Action.PRODUCE, queue="q", messages=[ProduceItem(data=Raw(b"1"))] * 1000)
        owner.advance(owner.actor._ledger.state.trans_id)
    state = owner.actor._ledger.state
    owner.actor.actor_ref.tell(StateDropped())
    owner.actor.actor_ref.tell(StateDropped())
    turns = 0
    while not (gone := owner.replicator.take(StateGone)):
        turns += 1
        owner.crank()
        assert turns < 50
    assert len(gone) == 1
    assert not state.messages, "all of it"


def test_deposed_with_all_in_the_log_it_shows_nothing_that_is_not_committed() -> None:
    owner = leading()
    produce(owner)
    owner.tell(Deposed(log_end=2, committed=1, leader=3))
    assert not owner.replicator.take(ReloadNeeded)
    owner.replies()
    owner.ask(Action.NODE_LIST)
    assert owner.replies() == [], "record 2 may still be lost (review 4.12)"
    entries = [entry for message in owner.replicator.take(Append) for entry in message.entries]
    owner.tell(Apply(entries))
    assert [len(getattr(reply, "queue_list", ())) for reply in owner.replies()] == [1]


def test_what_waits_for_a_commit_is_answered_also_when_the_node_leads_first() -> None:
    owner = leading()
    produce(owner)
    owner.tell(Deposed(log_end=2, committed=1, leader=3))
    owner.replies()
    owner.ask(Action.NODE_LIST)
    owner.tell(Promoted(6, []))
    assert owner.replies() == []
    owner.advance(3)
    assert [len(getattr(reply, "queue_list", ())) for reply in owner.replies()] == [1]


def test_a_hand_over_settles_what_is_open_and_sends_waiting_consumers_on() -> None:
    owner = leading()
    owner.ask(Action.CONSUME, queue="none", wait=60.0)
    produce(owner)
    owner.tell(Drain(5))
    [returned] = owner.router.take(Returned)
    assert [call.request.wait for call in returned.calls] == [60.0]
    assert not owner.replicator.take(Drained), "a produce is not committed yet"
    owner.advance(2)
    assert owner.replicator.take(Drained) == [Drained(5)]
    owner.tell(Undrain())
    produce(owner)
    assert len(owner.appended()) == 2


def test_a_lease_that_is_over_holds_back_what_only_looks() -> None:
    owner = leading()
    owner.advance(1, leased_until=100.5, confirmed_at=100.0)
    owner.crank(1.0)
    owner.ask(Action.CONSUME, queue="none")
    assert owner.replies() == [], "another node may lead, and have handed out more"
    owner.advance(1, leased_until=101.9, confirmed_at=101.25)
    assert [reply.code for reply in owner.replies()] == [0]


def test_a_change_of_the_members_is_an_entry_of_its_own() -> None:
    owner = leading()
    members = Members("", 9, [Member(1, "a", 1, 11, True)], [])
    owner.tell(Propose(4, members))
    assert owner.appended() == [], "of an earlier vote"
    produce(owner)
    owner.advance(2)
    owner.tell(Propose(5, members))
    assert owner.appended()[-1] == members


def test_deliveries_that_nobody_waits_for_linger_for_others() -> None:
    owner = leading()
    produce(owner, retry=60.0)
    owner.advance(2)
    owner.appended()
    owner.ask(Action.CONSUME, queue="q")
    assert owner.appended() == []
    owner.crank(0.01)
    assert len(owner.appended()) == 1


def test_with_a_full_disk_and_no_room_nothing_is_written_but_looking_goes_on() -> None:
    owner = leading()
    owner.advance(1, disk_full="no space", room_bytes=0)
    produce(owner)
    owner.ask(Action.CONFIRM, msg_id=1024)
    owner.ask(Action.LIST)
    assert [reply.error for reply in owner.replies()] == ["disk_full", "disk_full", None]


def test_it_stops_when_all_is_committed_and_refuses_what_comes_and_waits() -> None:
    owner = leading()
    owner.ask(Action.CONSUME, queue="none", wait=60.0)
    produce(owner)
    done = Probe()
    owner.tell(Stop(ref(done)))
    assert [reply.error for reply in owner.replies()] == ["stopping"]
    assert not owner.replicator.take(Stop)
    owner.advance(2)
    assert [reply.error for reply in owner.replies()] == [None]
    assert [message.reply_to for message in owner.replicator.take(Stop)] == [done]
    produce(owner)
    assert [reply.error for reply in owner.replies()] == ["stopping"]


def test_what_is_due_happens_by_itself_while_it_serves() -> None:
    owner = leading()
    produce(owner, delay=5.0, retry=60.0)
    owner.advance(2)
    owner.replies()
    owner.ask(Action.CONSUME, queue="q", wait=60.0)
    owner.crank(4.9)
    assert owner.replies() == []
    owner.crank(0.2)
    assert [reply.msg_id for reply in owner.replies()] == [2048]


def test_the_members_say_how_many_disks_there_are_and_what_may_be_written() -> None:
    owner = leading()
    produce(owner, replicate=2)
    assert [reply.error for reply in owner.replies()] == ["not_supported"]
    owner.tell(MembersChanged(3, 3, 2))
    produce(owner, replicate=2)
    owner.advance(2, replicas=(2, 1, 0))
    assert owner.replies() == []
    owner.advance(2, replicas=(2, 2, 0))
    assert [reply.code for reply in owner.replies()] == [0]


def test_the_log_is_told_when_somebody_counts_the_nodes() -> None:
    owner = one_of_three()
    owner.replicator.take(Append)
    counted = []
    for nodes in (None, 2, 1, 3, None):
        produce(owner, replicate=nodes)
        counted += [one.is_counted for one in owner.replicator.take(Append)]
        logged = owner.actor._appender.machine.logged
        owner.advance(logged, replicas=(logged, logged, 0))
    assert counted == [False, False, False, True, True], "as long as it waits"
    owner.advance(logged, replicas=(logged, logged, logged))
    produce(owner)
    owner.crank(0.1)
    assert [one.is_counted for one in owner.replicator.take(Append)] == [False]


def test_who_counts_the_nodes_is_answered_when_a_commit_in_pieces_gets_there() -> None:
    owner = one_of_three(commit_piece=1)
    for seq in range(3):
        produce(owner, replicate=3, seq=seq)
    for answered in ([0], [1, 2]):
        owner.crank(0.1)
        logged = owner.actor._appender.machine.logged
        owner.advance(logged, replicas=(logged, logged, logged))
        assert [reply.seq for reply in owner.replies() if reply.code == 0] == answered


def test_nothing_is_heard_while_a_lost_lead_is_undone_behind_what_was_committed_in_pieces() -> None:
    """Both take turns, one behind the other: what was heard between them met a state in the middle of an undo."""
    owner = one_of_three(undo_piece=1, commit_piece=1)
    made = [Request(Action.PRODUCE, queue="q", data=Raw(b'"sent"')) for _ in range(4)]
    owner.tell(Execute([Call(request, owner, 0, owner.asker) for request in made]))
    for _ in range(5):
        produce(owner, b'"not sent"')
    logged = owner.actor._appender.machine.logged
    for message in (advanced(logged), Deposed(log_end=logged, committed=logged, leader=3)):
        owner.actor.actor_ref.tell(message)
    owner.ask(Action.NODE_MONITOR, queue="q", seq="view")
    [view] = [reply for reply in owner.replies() if reply.seq == "view"]
    assert getattr(view, "size", 0) == 5, "behind the undo, by the state that it has left"
    assert not owner.actor._interlude.is_on
    assert len(owner.actor._ledger.state.messages) == 5


def test_between_the_pieces_of_long_work_others_have_their_turn() -> None:
    owner, pieces = leading(), 5
    owner.runtime.late_after = 1
    owner.ask(Action.PRODUCE, queue="q", messages=[ProduceItem(Raw(b"1")) for _ in range(pieces * CLEAR_CHUNK)])
    owner.appended()
    owner.advance(1 + pieces * CLEAR_CHUNK)
    sizes: list[int] = []

    def look() -> None:
        size = owner.actor._ledger.state.queues["q"].size
        if size and len(sizes) < 10 * pieces:
            sizes.append(size)
            owner.runtime.call_later(0.0, look)

    owner.runtime.call_later(0.0, look)
    owner.ask(Action.CLEAR, queue="q")
    assert len(set(sizes)) >= pieces - 1, "a timer rang after each piece"


def test_tens_of_thousands_of_waiting_consumers_are_given_back_some_in_each_turn() -> None:
    owner = leading()
    clients = [Owner.__new__(Owner) for _ in range(60)]
    for index in range(LET_GO_MAX * 3):
        request = Request(2, queue=f"w{index % 100}", wait=600.0)
        call = Call(request, clients[index % 60], index, owner.asker)
        owner.actor.actor_ref.tell(Execute([call]))
    owner.crank()
    assert len(delivery_of(owner.actor._broker).lines) == LET_GO_MAX * 3
    owner.tell(Drain(5))
    assert [len(message.calls) for message in owner.router.take(Returned)] == [LET_GO_MAX] * 3
    assert len(owner.replicator.take(Drained)) == 1


def test_a_consumer_that_is_given_back_asks_for_what_is_left_of_its_time() -> None:
    owner = leading()
    owner.ask(Action.CONSUME, queue="q", wait=60.0)
    owner.crank(20.0)
    owner.tell(Drain(5))
    owner.crank(0.01)
    [returned] = owner.router.take(Returned)
    assert 39.0 < (returned.calls[0].request.wait or 0.0) < 41.0
