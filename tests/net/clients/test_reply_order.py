"""In which order a client's replies leave, whatever the order in which they come."""

from hypothesis import given
from hypothesis import strategies as st

from net.clients.held_bytes import Account, HeldBytes
from net.clients.reply_order import UNORDERED, ReplyOrder


@given(st.permutations(range(12)), st.sets(st.integers(0, 11)))
def test_ordered_replies_leave_in_their_order_and_loose_ones_at_once(came: list[int], loose: set[int]) -> None:
    ledger = HeldBytes(1 << 20)
    account = Account(ledger)
    replies = ReplyOrder(account)
    places = [replies.place(is_ordered=request not in loose) for request in range(12)]
    assert [places[request] for request in sorted(loose)] == [UNORDERED - n for n in range(len(loose))]
    left: list[int] = []
    for request in came:
        if not replies.is_next(places[request]):
            assert request not in loose
            replies.hold(places[request], b"%d" % request)
            continue
        left.append(request)
        while request not in loose and (later := replies.take_held()) is not None:
            left.append(int(later))
    assert [one for one in left if one not in loose] == [request for request in range(12) if request not in loose]
    assert [one for one in left if one in loose] == [request for request in came if request in loose]
    assert account.held_back == ledger.used == 0
