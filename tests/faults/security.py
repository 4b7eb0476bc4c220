"""What tests of security need: an authority, tokens, a stranger at the nodes' port, and all that he could say."""

import contextlib
import datetime
import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import trustme

from actors.gateway.access import TokenHash
from net.peers.link import LinkTerms, Origin, PeerLink, encoded
from net.peers.messages import (
    PEER_MAJOR,
    ClientLeft,
    Diverged,
    Forward,
    ForwardAnswers,
    ForwardedCall,
    ForwardReturned,
    Hello,
    PeerMessage,
    Pull,
    Push,
    RootMembers,
    ShardLeader,
    ShardLeaders,
    SnapshotNeeded,
    SnapshotPull,
    SnapshotRows,
    Stored,
    TakeOver,
    Vote,
    VoteRequest,
)
from net.peers.proof import Keyring, key_of
from quorate.protocol import Action, Request
from tests.cluster import wait_for
from tests.node import Node

LONG_AGO = datetime.datetime(2001, 1, 1, tzinfo=datetime.UTC)


class Authority:
    """Issues certificates into a folder. The names of their files are what `issue` returns."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(exist_ok=True)
        self._ca = trustme.CA()
        self._count = 0
        self.ca = str(folder / "ca.pem")
        self._ca.cert_pem.write_to_path(self.ca)

    def issue(self, *names: str, common: str | None = None, is_over: bool = False) -> str:
        """A certificate and its key, in one file."""
        self._count += 1
        issued = self._ca.issue_cert(*names, common_name=common, not_after=LONG_AGO if is_over else None)
        path = self._folder / f"{self._count}.pem"
        issued.private_key_and_cert_chain_pem.write_to_path(path)
        return str(path)


class Stranger:
    """Somebody who dials a node's port for nodes, with a secret or without one, and says what it likes."""

    def __init__(self, port: int, hello: Hello | None = None, secret: str | None = None) -> None:
        self.sock = socket.create_connection(("127.0.0.1", port), timeout=10)
        keys = () if secret is None else (key_of(secret),)
        terms = LinkTerms(Keyring(keys, False, lambda: b"n" * 32))
        self.why = ""
        self.link = PeerLink(self, self, terms, is_dialler=True, origin=Origin())
        if hello is not None:
            self.link.introduce(hello)
            while not self.link.is_open and not self.link.is_closed:
                self._hear()

    def _hear(self) -> None:
        data = b""
        with contextlib.suppress(ConnectionError):
            data = self.sock.recv(1 << 16)
        if data:
            self.link.receive(data)
        else:
            self.link.lost("closed by the node")
            self.sock.close()

    def say(self, *messages: PeerMessage) -> None:
        """Over the link."""
        with contextlib.suppress(ConnectionError):
            self.link.send([encoded(message) for message in messages])

    def until_cut(self) -> str:
        """Wait until the node has closed the link; why, if it said so."""
        while not self.link.is_closed:
            self._hear()
        self.sock.close()
        return self.why

    def write(self, data: bytes) -> None:
        with contextlib.suppress(ConnectionError):
            self.sock.sendall(data)

    def close(self) -> None:
        self.sock.close()

    abort = close

    def get_write_buffer_size(self) -> int:
        """Nothing waits."""
        return 0

    def link_hello(self, link: PeerLink, hello: Hello) -> None:
        link.is_open = True

    def link_said(self, link: PeerLink, message: PeerMessage) -> None:
        raise AssertionError("a link that was dialled is for the other's hellos alone")

    def link_renewed(self, link: PeerLink, hello: Hello) -> None:
        pass

    def link_receiving(self, link: PeerLink) -> None:
        pass

    def link_drained(self, link: PeerLink) -> None:
        """Nothing waits here."""

    def link_closed(self, link: PeerLink, reason: str) -> None:
        self.why = reason


def hello_of(node_id: int, to: int, cluster_id: int, disk_id: int = 1, **fields: Any) -> Hello:
    """As that node would say it."""
    return Hello(PEER_MAJOR, 0, 1, node_id, to, cluster_id, disk_id, "127.0.0.1", 1, "127.0.0.1", 2, 99, **fields)


TOKENS = {name: f"{name}.token-of-{name}" for name in ("worker", "viewer", "operator")}


def access_file(folder: Path, **allow: list[str]) -> Path:
    path = folder / "access.toml"
    lines = []
    for name, rights in allow.items():
        lines.append(f"[{'' if name == 'anonymous' else 'principals.'}{name}]\nallow = {json.dumps(rights)}\n")
        if name in TOKENS:
            lines.append(f'tokens = ["{TokenHash.of(TOKENS[name]).text}"]\n')
        elif name != "anonymous":
            lines.append(f'certificates = ["{name}"]\n')
    path.write_text("".join(lines))
    path.chmod(0o600)
    return path


@contextlib.contextmanager
def running(node: Node) -> Iterator[Node]:
    try:
        node.start()
        yield node
        assert "Traceback" not in node.log, node.log
        assert "failed, and this worker ends" not in node.log
        node.stop()
    finally:
        node.kill()


def reloaded(node: Node) -> None:
    """SIGHUP, and wait until it holds in all workers, or is refused."""
    assert node.process is not None
    held, refused = "that was read again holds here", "the configuration stays"
    workers, before = int(node.config.get("shards", 1)), (node.log.count(held), node.log.count(refused))
    os.kill(node.process.pid, 1)
    wait_for(lambda: node.log.count(held) >= before[0] + workers or node.log.count(refused) > before[1])


LIMITS = (0, 1, -1, 2**31, 2**43, 2**53 - 1, 2**53, 2**63, 2**64 - 1)


def messages_at_their_limits(vote_id: int) -> Iterator[PeerMessage]:
    """Every message with every field at its limits and beyond, one at a time, said under the present vote_id."""
    request = Request(Action.PRODUCE, queue="q")
    base: list[PeerMessage] = [
        VoteRequest(vote_id, True, False, vote_id, 1),
        Vote(vote_id, True, False),
        Push(vote_id, 1, 1, [], 1, 1.0),
        Push(vote_id, 1, 1, [b"", b"x", os.urandom(100)], 1, 1.0, True),
        Stored(vote_id, 1, 1.0),
        Pull(vote_id, 1, 1, 10),
        Diverged(vote_id, 1, 1, 1),
        SnapshotNeeded(vote_id, 1),
        SnapshotPull(vote_id, 1, b"\xff" * 100),
        SnapshotRows(vote_id, 1, 1, b"\xc1", [(b"k", b"v")], b"", True, b"", b"\xc1"),
        TakeOver(vote_id),
        Forward(1, [ForwardedCall(1, 1, 1000, request, [b"1"])]),
        ForwardAnswers([(1, (0, b"\xc1", []))]),
        ForwardAnswers([(1, (99, b"", []))], 1),
        ForwardReturned([1, 2]),
        ClientLeft(1),
        ShardLeaders([ShardLeader(1, 1, 1, "h", 1)]),
        RootMembers(1, b"\xc1"),
    ]
    yield from base
    for message in base:
        for name in message.__struct_fields__:
            value = getattr(message, name)
            others: list[Any] = []
            if isinstance(value, bool):
                others = [not value, 7]
            elif isinstance(value, int):
                others = [*LIMITS, None, "x"]
            elif isinstance(value, float):
                others = [float("nan"), float("inf"), float("-inf"), 1e308, -1e308, None]
            elif isinstance(value, bytes):
                others = [b"", b"\xff" * 5000, None]
            elif isinstance(value, list):
                others = [[], [None], [*value, *value, *value], 5]
            for other in others:
                changed = type(message)(*[getattr(message, one) for one in message.__struct_fields__])
                setattr(changed, name, other)
                yield changed


def evil(vote_id: int, end: int) -> list[PeerMessage]:
    """What deposed leaders, bricked clusters and forged records once: findings/trial.md, 1 to 3."""
    return [
        VoteRequest(2**53 - 1, False, True, 2**53 - 1, 2**43 - 1),
        VoteRequest(vote_id + 1, False, True, vote_id + 1, end + 5),
        Push(vote_id, 0, 0, [], end, 1.0),
        Push(vote_id + 1, 0, 0, [], end, 1.0),
        Push(vote_id + 50, end, vote_id, [b"forged"], end + 2, 1.0),
        TakeOver(vote_id),
        Vote(2**53 - 1, False, False),
        Stored(2**53 - 1, 0, 0.0),
    ]
