"""When records become an entry: at once, or when those that were just answered have asked again."""

from hypothesis import given
from hypothesis import strategies as st

from actors.messages.call import Call
from actors.shard.appending import Appending, AppendingLimits, Step
from actors.shard.ledger import Ledger
from quorate.protocol import Reply, Request
from storage.message import Message
from storage.message_ids import message_id
from storage.records import Members, Remove
from storage.state import ShardState
from tests.actors.cranked import Probe, ref
from tests.actors.queues.shard import Shard


def after_a_commit(limits: AppendingLimits, majority: int = 1) -> Step:
    """What is to be done when one reply waits, and a commit has just freed three others."""
    client = Shard()
    call = Call(Request(action=9, queue="q"), client, 0, ref(Probe()))
    ledger = Ledger(ShardState())
    ledger.replicated.majority = majority
    appending = Appending(limits, 0)
    ledger.append(Remove("q"))
    ledger.answer_when_committed(call, Reply(action=9, code=0))
    appending.committed(1.0, 1, 0, 3)
    return appending.step(1.0, ledger, is_urgent=False)


def test_a_write_that_replies_wait_for_is_shared_with_those_who_will_ask_again() -> None:
    assert after_a_commit(AppendingLimits()) is Step.GATHER


def test_nobody_is_waited_for_where_no_reply_waits_for_the_disk() -> None:
    assert after_a_commit(AppendingLimits(waits_for_disk=False)) is Step.APPEND


def test_other_nodes_are_sent_what_was_gathered_in_any_case() -> None:
    assert after_a_commit(AppendingLimits(waits_for_disk=False), majority=2) is Step.GATHER


@given(st.lists(st.integers(1, 5), min_size=1, max_size=8), st.integers(1, 6), st.booleans())
def test_stretches_end_where_entries_do_and_know_each_record_once(
    turns: list[int], stretch_records: int, has_proposal: bool
) -> None:
    """Also where what has gathered becomes several entries: a head that goes takes whole ones, and what is in them."""
    state = ShardState(stretch_records=stretch_records)
    state.stretches.begin(0)
    ledger, appending = Ledger(state), Appending(AppendingLimits(writes_max=1000, entry_bytes_max=600), 0)
    ends = {0}
    for count in turns:
        for _ in range(count):
            number = state.trans_id + 1
            ledger.append(Message("q", message_id(number, 0), b"x" * 100, 1.0, 1.0, 9.0, 5.0, 0, None))
        if has_proposal:
            appending.propose(Members("", 1, [], []))
        append = appending.append(ledger, 1, 0.0, is_disk_full=False)
        assert append is not None
        ends |= {entry.last_trans_id for entry in append.entries}
    seen: list[int] = []
    stretches, upto = state.stretches, 0
    while (stretch := stretches.first(state.trans_id)) is not None:
        assert stretch.start == upto
        assert stretch.until in ends
        assert all(upto < msg_id // 1024 <= stretch.until for msg_id in stretch.produced)
        seen += stretch.produced
        upto = stretch.until
        assert stretches.drop_trimmed(upto)
    assert stretches.noted == state.trans_id
    assert seen == [msg_id for msg_id in state.messages if msg_id // 1024 <= upto]
