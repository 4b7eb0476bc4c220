"""Scans go on when others have had their turn, piece by piece."""

from actors.messages.call import Call
from actors.queues.scanning import SCAN_PIECE
from quorate.protocol import Action, Request
from tests.actors.queues.shard import NOBODY, Shard


def test_each_piece_waits_for_a_turn_of_its_own_and_others_go_first() -> None:
    shard = Shard()
    shard.broker.jobs.set_late(lambda: True)
    shard.ask(Action.PRODUCE, queue="q", messages=[{"data": n} for n in range(3 * SCAN_PIECE)])
    calls = [Call(Request(23, full=True, count=1000), shard, order, NOBODY) for order in (1001, 1002)]
    shard.execute([*calls, Call(Request(5, "q"), shard, 1003, NOBODY)])
    assert [order for order in (1001, 1002, 1003) if order in _answered(shard)] == [1003]
    shard.broker.go_on(shard.now)
    assert 1001 in _answered(shard)
    assert 1002 not in _answered(shard)
    shard.settle()
    assert [len(shard.replies[order]["messages"]) for order in (1001, 1002)] == [SCAN_PIECE] * 2


def test_a_scan_that_is_not_done_when_the_lead_is_lost_is_given_back_like_all_others() -> None:
    shard = Shard()
    call = Call(Request(23), shard, 1001, NOBODY)
    shard.execute([call])
    assert shard.broker.take_open(0) == ([], [call])
    assert not shard.broker.has_more


class _Gone(Shard):
    has_left = is_gone = True
    has_ended = False


def test_for_a_client_that_is_gone_nothing_is_looked_at() -> None:
    shard = Shard()
    shard.ask(Action.PRODUCE, queue="q", data="x")
    for full in (True, None):
        order = shard.send(Action.SCAN, _Gone(), full=full)
        assert not shard.replies[order].get("messages")
        assert shard.replies[order].get("messages", []) == []
        assert not shard.replies[order].get("names")


def _answered(shard: Shard) -> set[int]:
    shard.commit()
    return set(shard.replies)
