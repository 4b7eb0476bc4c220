"""What a link is sent first, and what waits while it is full."""

from net.peers.outbox import BULK_BYTES, Outbox


def test_what_the_cluster_says_goes_before_clients_requests() -> None:
    outbox = Outbox()
    outbox.add_bulk(b"request", 7)
    outbox.add(b"heartbeat")
    assert outbox.take(is_full=False) == [b"heartbeat", b"request"]
    assert outbox.serial == 7
    assert not outbox


def test_while_the_link_is_full_only_the_cluster_itself_is_heard() -> None:
    outbox = Outbox()
    outbox.add_bulk(b"request", 7)
    assert not outbox.has_ready(is_full=True)
    outbox.add(b"heartbeat")
    assert outbox.take(is_full=True) == [b"heartbeat"]
    assert outbox.serial == 0, "what has not left can be asked for again elsewhere"
    assert outbox.bulk_bytes == len(b"request")


def test_clients_requests_are_handed_over_some_at_a_time() -> None:
    outbox = Outbox()
    for serial in range(1, 6):
        outbox.add_bulk(bytes(BULK_BYTES // 2), serial)
    sizes = []
    while outbox:
        sizes.append(len(outbox.take(is_full=False)))
    assert sizes == [2, 2, 1]
    outbox.add_bulk(bytes(10 * BULK_BYTES), 9)
    assert len(outbox.take(is_full=False)) == 1, "one of any size"
    outbox.add_bulk(b"x", 10)
    outbox.clear()
    assert not outbox
    assert (outbox.serial, outbox.bulk_bytes) == (9, 0)
