"""Links between nodes: fed whole and byte by byte, and with all that is not a message."""

import pytest

from net.peers.link import FRAME_BYTES_MAX, PeerLink, encoded
from net.peers.messages import Hello, PeerMessage, Push, Refused, Stored
from tests.net.peers.wire import OPENING, TERMS, UNKNOWN, framed

HELLO = Hello(2, 0, 1, 2, 1, 9, 77, "h", 1)


class End:
    """Transport and sink in one: notes everything."""

    def __init__(self, *, is_dialler: bool = False) -> None:
        self.written = b""
        self.hellos: list[Hello] = []
        self.said: list[PeerMessage] = []
        self.closed: list[str] = []
        self.parts = 0
        self.accepts = True
        self.link = PeerLink(self, self, TERMS, is_dialler=is_dialler, origin=UNKNOWN)

    def write(self, data: bytes) -> None:
        self.written += data

    def close(self) -> None:
        self.written += b"<close>"

    def get_write_buffer_size(self) -> int:
        """Nothing waits."""
        return 0

    def abort(self) -> None:
        self.written += b"<abort>"

    def link_hello(self, link: PeerLink, hello: Hello) -> None:
        self.hellos.append(hello)
        if not link.is_dialler and self.accepts:
            link.is_open = True

    def link_said(self, link: PeerLink, message: PeerMessage) -> None:
        self.said.append(message)

    def link_renewed(self, link: PeerLink, hello: Hello) -> None:
        self.hellos.append(hello)

    def link_receiving(self, link: PeerLink) -> None:
        self.parts += 1

    def link_drained(self, link: PeerLink) -> None:
        """Nothing waits here."""

    def link_closed(self, link: PeerLink, reason: str) -> None:
        self.closed.append(reason)


MESSAGES: list[PeerMessage] = [Push(3, 10, 2, [b"entry"], 9, 1.5), Stored(3, 11, 1.5)]


def test_nothing_is_taken_before_the_hello_is_accepted() -> None:
    end = End()
    end.accepts = False
    end.link.receive(OPENING + framed(HELLO) + framed(MESSAGES[0]))
    assert end.said == []
    assert end.closed == ["a message before it was accepted"]


@pytest.mark.parametrize("size", [1, 2, 7, 10_000])
def test_messages_come_whole_however_the_stream_is_cut(size: int) -> None:
    end = End()
    stream = OPENING + framed(HELLO) + b"".join(map(framed, MESSAGES))
    for at in range(0, len(stream), size):
        end.link.receive(stream[at : at + size])
    assert end.hellos == [HELLO]
    assert end.said == MESSAGES
    assert not end.closed


def test_the_sink_is_told_that_a_message_is_on_its_way_and_not_before_there_is_a_part_of_it() -> None:
    end = End()
    frame = framed(MESSAGES[0])
    end.link.receive(OPENING + framed(HELLO)[:5])
    end.link.receive(framed(HELLO)[5:])
    end.link.receive(frame)
    assert end.parts == 0, "who has not introduced itself is not heard of, and what is whole is said"
    end.link.receive(frame[:9])
    end.link.receive(frame[9:12])
    assert end.parts == 2
    end.link.receive(frame[12:])
    assert (end.parts, end.said) == (2, [MESSAGES[0]] * 2)


@pytest.mark.parametrize(
    ("stream", "says"),
    [
        (b"GET / HTTP/1.1\r\n", "does not speak"),
        (OPENING + b"\xff\xff\xff\xff", "a frame of 4294967295 bytes"),
        (OPENING + b"\x00\x00\x20\x00", "a frame of 8192 bytes"),
        (OPENING + b"\x00\x00\x00\x03abc", "a frame that is no message"),
        (OPENING + framed(MESSAGES[0]), "before the hello"),
        (OPENING + framed(HELLO) + framed(HELLO), "a second hello"),
        (OPENING + framed(HELLO) + (FRAME_BYTES_MAX + 1).to_bytes(4, "big"), "a frame of"),
    ],
)
def test_what_is_no_message_cuts_the_link(stream: bytes, says: str) -> None:
    end = End()
    end.accepts = False
    end.link.receive(stream + b"and more")
    assert len(end.closed) == 1
    assert says in end.closed[0]
    assert end.written.endswith(b"<abort>")
    end.link.receive(framed(MESSAGES[0]))
    assert not end.said


def test_a_refusal_says_why_to_both() -> None:
    accepting, dialling = End(), End(is_dialler=True)
    dialling.link.introduce(HELLO)
    accepting.link.receive(dialling.written)
    dialling.written = b""
    dialling.link.receive(accepting.written)
    accepting.written = b""
    accepting.link.receive(dialling.written)
    accepting.accepts = False
    accepting.link.refuse("another cluster")
    dialling.link.receive(accepting.written.removesuffix(b"<close>"))
    assert dialling.closed == ["it refuses this node: another cluster"]
    assert accepting.closed == ["another cluster"]


def test_nobody_talks_before_both_have_introduced_themselves() -> None:
    dialling = End(is_dialler=True)
    dialling.link.send([encoded(MESSAGES[0])])
    assert dialling.written == b""
    dialling.link.receive(OPENING + framed(Refused("no")))
    assert dialling.closed


def test_a_deeply_nested_frame_from_a_stranger_cuts_the_link_and_no_more() -> None:
    end = End()
    payload = b"\x93\x02\xa1x" + b"\x91" * 3000 + b"\xc0"
    end.link.receive(OPENING + len(payload).to_bytes(4, "big") + payload)
    assert end.written.endswith((b"<abort>", b"<close>"))  # Python 3.12 and later read so deep, and it is no greeting
