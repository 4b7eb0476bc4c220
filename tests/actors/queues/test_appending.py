"""When records become an entry: at once, or when those that were just answered have asked again."""

from actors.messages.call import Call
from actors.queues.appending import Appending, AppendingLimits, Step
from actors.queues.ledger import Ledger
from quorate.protocol import Reply, Request
from storage.records import Remove
from storage.state import ShardState
from tests.actors.cranked import Probe, ref
from tests.actors.queues.shard import Shard


def after_a_commit(limits: AppendingLimits, majority: int = 1) -> Step:
    """What is to be done when one reply waits, and a commit has just freed three others."""
    client = Shard()
    call = Call(Request(action=9, queue="q"), client, 0, ref(Probe()))
    ledger = Ledger(ShardState())
    ledger.majority = majority
    appending = Appending(limits, 0)
    ledger.append(Remove("q"))
    ledger.park(call, Reply(action=9, code=0))
    appending.committed(1.0, 0, 3)
    return appending.step(1.0, ledger, is_urgent=False)


def test_a_write_that_replies_wait_for_is_shared_with_those_who_will_ask_again() -> None:
    assert after_a_commit(AppendingLimits()) is Step.LOOK_AGAIN


def test_nobody_is_waited_for_where_no_reply_waits_for_the_disk() -> None:
    assert after_a_commit(AppendingLimits(waits_for_disk=False)) is Step.APPEND


def test_other_nodes_are_sent_what_was_gathered_in_any_case() -> None:
    assert after_a_commit(AppendingLimits(waits_for_disk=False), majority=2) is Step.LOOK_AGAIN
