"""Two ends of a link prove one secret to each other, and whoever stands between can't change what they say."""

from collections.abc import Callable
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from net.peers.link import CLOSED, LinkTerms, Origin, PeerLink, encoded
from net.peers.messages import PEER_MAJOR, Hello, PeerMessage, Stored, VoteRequest
from net.peers.proof import MAGIC, OPENING_BYTES, Key, Keyring, key_of

OLD = key_of("the secret of before, drawn at random")
NEW = key_of("the secret of today, drawn at random too")
OTHER = key_of("another cluster's secret, not this one's")
_serial = count(1)


def nonce() -> bytes:
    return next(_serial).to_bytes(32, "big")


def terms(*keys: Key, required: bool = True) -> LinkTerms:
    return LinkTerms(Keyring(keys, required, nonce))


def hello(node_id: int, to: int) -> Hello:
    return Hello(PEER_MAJOR, 0, 1, node_id, to, 9, node_id * 11, f"n{node_id}", 1)


class Side:
    """One end: what it writes waits in `out` until it is carried."""

    def __init__(self, node_id: int, to: int, held: LinkTerms, *, is_dialler: bool) -> None:
        self.node_id, self.to, self.held = node_id, to, held
        self.out: list[bytes] = []
        self.said: list[PeerMessage] = []
        self.faults: list[str] = []
        self.proofs = 0
        self.is_gone = False
        origin = Origin("192.0.2.7", proved=self._proved)
        self.link = PeerLink(self, self, held, is_dialler=is_dialler, origin=origin)

    def _proved(self) -> None:
        self.proofs += 1

    def write(self, data: bytes) -> None:
        self.out.append(data)

    def close(self) -> None:
        self.is_gone = True

    abort = close

    def get_write_buffer_size(self) -> int:
        return 0

    def link_hello(self, link: PeerLink, its: Hello) -> None:
        if link.is_dialler:
            link.is_open = True
        else:
            link.accept(hello(self.node_id, self.to))

    def link_said(self, link: PeerLink, message: PeerMessage) -> None:
        self.said.append(message)

    def link_renewed(self, link: PeerLink, its: Hello) -> None:
        self.said.append(its)

    def link_receiving(self, link: PeerLink) -> None:
        pass

    def link_drained(self, link: PeerLink) -> None:
        """Nothing waits here."""

    def link_closed(self, link: PeerLink, reason: str) -> None:
        self.faults.append(reason)


Carry = Callable[[bytes], list[bytes]]


def as_it_is(data: bytes) -> list[bytes]:
    return [data]


def pair(dialler: LinkTerms, listener: LinkTerms) -> tuple[Side, Side]:
    one, two = Side(1, 2, dialler, is_dialler=True), Side(2, 1, listener, is_dialler=False)
    one.link.introduce(hello(1, 2))
    return one, two


def carry(one: Side, two: Side, forth: Carry = as_it_is, back: Carry = as_it_is) -> None:
    """Until nobody has anything to say."""
    while one.out or two.out:
        for source, target, way in ((one, two, forth), (two, one, back)):
            out, source.out = source.out, []
            for data in out:
                for part in way(data):
                    target.link.receive(part)


SAID: list[PeerMessage] = [VoteRequest(3, False, False, 2, 10), Stored(3, 11, 1.5)]


def say(one: Side) -> None:
    one.link.send([encoded(message) for message in SAID])


@pytest.mark.parametrize(
    ("dialler", "listener"),
    [
        (terms(NEW), terms(NEW)),
        (terms(NEW, OLD), terms(OLD)),
        (terms(OLD), terms(NEW, OLD)),
        (terms(NEW, OLD), terms(OLD, NEW)),
        (terms(NEW, required=False), terms(NEW)),
    ],
)
def test_ends_that_share_a_secret_prove_it_and_talk(dialler: LinkTerms, listener: LinkTerms) -> None:
    one, two = pair(dialler, listener)
    carry(one, two)
    say(one)
    carry(one, two)
    assert two.said == SAID
    assert one.link.is_proven
    assert two.link.is_proven
    assert (two.proofs, one.faults, two.faults) == (1, [], [])


@pytest.mark.parametrize(
    ("dialler", "listener", "why"),
    [
        (terms(OTHER), terms(NEW), "has another cluster secret"),
        (terms(), terms(NEW), "has no cluster secret"),
        (terms(OLD), terms(NEW), "has another cluster secret"),
    ],
)
def test_who_has_not_the_secret_is_refused_before_anything_it_says_is_read(
    dialler: LinkTerms, listener: LinkTerms, why: str
) -> None:
    one, two = pair(dialler, listener)
    carry(one, two)
    assert two.link.peer is None
    assert why in two.faults[0]
    assert two.is_gone
    assert two.proofs == 0


def test_a_node_that_asks_for_no_proof_talks_with_one_that_has_no_secret_and_knows_that_nothing_is_proven() -> None:
    one, two = pair(terms(required=False), terms(NEW, required=False))
    carry(one, two)
    say(one)
    carry(one, two)
    assert two.said == SAID
    assert not two.link.is_proven


def test_a_node_that_asks_for_a_proof_cuts_one_that_it_has_dialled_and_that_gives_none() -> None:
    one, two = pair(terms(NEW), terms(required=False))
    carry(one, two)
    assert "has no cluster secret" in one.faults[0]
    assert not one.link.is_open


@given(at=st.integers(0, 400), bit=st.integers(0, 7))
def test_no_bit_that_is_changed_on_the_way_goes_unnoticed(at: int, bit: int) -> None:
    """In any of the dialler's bytes: its opening, its hello, its proof, its messages and their seals."""
    one, two = pair(terms(NEW), terms(NEW))
    passed = 0
    is_changed = False

    def forth(data: bytes) -> list[bytes]:
        nonlocal passed, is_changed
        inside = at - passed
        passed += len(data)
        if not 0 <= inside < len(data):
            return [data]
        is_changed = True
        return [data[:inside] + bytes([data[inside] ^ 1 << bit]) + data[inside + 1 :]]

    carry(one, two, forth)
    say(one)
    carry(one, two, forth)
    if is_changed:
        assert two.said in ([], SAID[:1]), "nothing behind the change counts, and the change does not"
    else:
        assert two.said == SAID


def test_frames_can_not_be_repeated_left_out_or_swapped() -> None:
    def opened() -> tuple[Side, Side]:
        one, two = pair(terms(NEW), terms(NEW))
        carry(one, two)
        return one, two

    for order in ((0, 0), (1,), (1, 0)):
        one, two = opened()
        for message in SAID:
            one.link.send([encoded(message)])
        frames, one.out = one.out, []
        for index in order:
            two.link.receive(frames[index])
        assert "does not prove" in two.faults[0], order
        assert two.said in ([], SAID[:1])


def test_what_one_link_has_heard_opens_no_other() -> None:
    heard: list[bytes] = []
    one, two = pair(terms(NEW), terms(NEW))

    def listening(data: bytes) -> list[bytes]:
        heard.append(data)
        return [data]

    carry(one, two, listening)
    again = Side(2, 1, terms(NEW), is_dialler=False)
    for data in heard:
        again.link.receive(data)
    assert "does not prove" in again.faults[0]
    assert again.link.peer is None


def test_a_node_can_not_be_made_to_prove_itself_to_itself() -> None:
    """Whoever has no secret sends each byte back to where it came from."""
    one = Side(1, 2, terms(NEW), is_dialler=True)
    one.link.introduce(hello(1, 2))
    for _ in range(10):
        out, one.out = one.out, []
        for data in out:
            one.link.receive(data)
    assert not one.link.is_open
    assert one.faults


def test_a_stranger_is_cut_off_after_few_bytes_and_nothing_of_them_is_kept() -> None:
    for stream in (b"GET / HTTP/1.1\r\n", b"\x16\x03\x01", b"QPEER2\n" + b"x" * 100):
        two = Side(2, 1, terms(NEW), is_dialler=False)
        two.link.receive(stream)
        assert "does not speak" in two.faults[0]
        assert two.out == [], "and is told nothing"
    two = Side(2, 1, terms(NEW), is_dialler=False)
    opening = Keyring((NEW,), True, nonce).opening()
    two.link.receive(opening + b"\x00\x00\x10\x01" + b"x" * 10)
    assert two.faults == ["a frame of 4097 bytes"]
    assert len(opening) == OPENING_BYTES
    assert opening.startswith(MAGIC)


def test_every_nonce_is_another() -> None:
    keyring = Keyring((NEW,), True, nonce)
    assert keyring.opening() != keyring.opening()


def test_a_secret_that_could_be_guessed_is_refused_and_none_is_ever_shown() -> None:
    with pytest.raises(ValueError, match="at least 32 characters") as refused:
        key_of("hunter2")
    assert "hunter2" not in str(refused.value)
    shown = repr((NEW, Keyring((NEW,)), terms(NEW)))
    assert NEW.secret.decode() not in shown
    assert str(NEW.secret) not in shown


def test_a_certificate_for_another_node_is_refused() -> None:
    one, two = pair(terms(required=False), terms(required=False))
    two.link = PeerLink(two, two, LinkTerms(), is_dialler=False, origin=Origin("a", frozenset({3, 4})))
    carry(one, two)
    assert two.faults == ["it says that it is node 1, and its certificate is for node 3, 4"]


@pytest.mark.parametrize("size", [1, 2, 7, 10_000])
def test_sealed_frames_come_whole_however_the_stream_is_cut(size: int) -> None:
    one, two = pair(terms(NEW), terms(NEW))
    said: list[PeerMessage] = [Stored(2, n, 0.5) for n in range(20)]

    def cut(data: bytes) -> list[bytes]:
        return [data[at : at + size] for at in range(0, len(data), size)]

    carry(one, two, cut, cut)
    one.link.send([encoded(message) for message in said])
    carry(one, two, cut, cut)
    assert two.said == said
    assert not one.faults + two.faults


def test_when_a_secret_is_retired_the_links_that_were_proved_by_it_have_to_go_and_no_others() -> None:
    by_old, by_new, by_none = (pair(held, held)[0] for held in (terms(OLD), terms(NEW), terms(required=False)))
    for side in (by_old, by_new, by_none):
        other = Side(2, 1, side.held, is_dialler=False)
        carry(side, other)
        assert side.link.is_open
    both, new_alone, nothing = terms(NEW, OLD), terms(NEW), terms(required=False)
    assert [both.is_met_by(side.link) for side in (by_old, by_new, by_none)] == [True, True, False]
    assert [new_alone.is_met_by(side.link) for side in (by_old, by_new, by_none)] == [False, True, False]
    assert nothing.is_met_by(by_none.link)
    trusted = PeerLink(by_old, by_old, terms(OLD), is_dialler=False, origin=Origin(is_trusted=True))
    assert new_alone.is_met_by(trusted), "the system says who that is"


def test_a_node_introduces_itself_anew_over_an_open_link_and_nobody_else_does() -> None:
    one, two = pair(terms(NEW), terms(NEW))
    carry(one, two)
    newer = Hello(PEER_MAJOR, 0, 1, 1, 2, 9, 11, "elsewhere", 1)
    one.link.renew(newer)
    carry(one, two)
    assert two.said == [newer]
    assert two.link.peer == newer
    for other in (hello(3, 2), Hello(PEER_MAJOR, 0, 1, 1, 2, 9, 12, "n1", 1)):
        one, two = pair(terms(NEW), terms(NEW))
        carry(one, two)
        one.link.renew(other)
        carry(one, two)
        assert two.faults == ["a hello of another node than before"]
        assert not two.said


def test_who_was_dialled_says_nothing_over_that_link() -> None:
    one, two = pair(terms(NEW), terms(NEW))
    carry(one, two)
    two.link.send([encoded(Stored(2, 1, 0.5))])
    carry(one, two)
    assert one.faults == ["a message over a link that is for this node's own"]
    assert not one.said


def test_a_link_that_ends_before_the_other_side_proved_anything_says_where_to_look() -> None:
    one, _ = pair(terms(NEW), terms(NEW))
    one.link.lost(CLOSED)
    assert "its log may say why" in one.faults[0]
    one, two = pair(terms(NEW), terms(NEW))
    carry(one, two)
    one.link.lost(CLOSED)
    assert one.faults == [CLOSED]
