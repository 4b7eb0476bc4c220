"""Asked: what this worker's clients want of other nodes and workers, on its way into frames.

Calls for one destination leave together, cut into frames that are not too long: the cluster's own words wait behind
each. With several clients the next calls mostly come in the turn after their answers, and are waited for
(`CommitDelay`). `Voice` says what a Router's parts say to other nodes and workers, by their keys.
"""

from typing import Any, Final

from actors.gateway.under_way import Forwarding, call_bytes
from actors.messages.mailbox import Mailbox
from actors.messages.mailboxes import ToLinks
from actors.messages.peers import CutPeer, SendPeers
from actors.messages.worker_keys import node_of
from actors.runtime.commit_delay import CommitDelay
from actors.runtime.contract import Runtime
from net.peers.forwarding import packed_call
from net.peers.messages import Forward, ForwardedCall

FORWARD_BYTES: Final = 1 << 20
"""What one frame of forwarded calls or answers has at most, or one of them."""


class Voice:
    """One Router's; `links` is known before any message comes."""

    def __init__(self) -> None:
        self.links: Mailbox[ToLinks]
        self.has_ended = False

    def say(self, key: int, message: Any) -> None:
        """Say this to that one, if there is a link."""
        if not self.has_ended:
            self.links.tell(SendPeers((key,), message))

    def cut(self, key: int, reason: str) -> None:
        """Say that what that one says can't be right."""
        self.links.tell(CutPeer(key, reason))


class Asked:
    """One Router's, in this life of it, `session`. `forward_bytes`: see `FORWARD_BYTES`."""

    def __init__(self, runtime: Runtime, voice: Voice, forward_bytes: int) -> None:
        self.session = int(runtime.random() * (1 << 48))
        self._runtime = runtime
        self._voice = voice
        self._forward_bytes = forward_bytes
        self._unsent: dict[int, list[Forwarding]] = {}
        self._gathering = CommitDelay()
        self._is_gathering = False

    @property
    def _unsent_count(self) -> int:
        return sum(map(len, self._unsent.values()))

    def forward(self, forwards: list[Forwarding]) -> None:
        """Send these, now or with more that will come soon."""
        for one in forwards:
            self._unsent.setdefault(one.to, []).append(one)
        self._send_or_gather()

    def answered(self, count: int) -> None:
        """So many calls were answered: their clients may ask again in a moment."""
        self._gathering.committed(self._runtime.monotonic(), self._unsent_count, count, is_shared=True)

    def _send_or_gather(self) -> None:
        is_near = all(to < 0 and not node_of(to) for to in self._unsent)  # written to in microseconds: no wait
        now = self._runtime.monotonic()
        if is_near or self._gathering.is_over(now, self._unsent_count):
            self.send()
        elif not self._is_gathering:
            self._is_gathering = True
            self._runtime.call_later(self._gathering.left_s(now), self._gathered)

    def _gathered(self) -> None:
        self._is_gathering = False
        if self._unsent:
            self._send_or_gather()

    def send(self) -> None:
        """All that has gathered leaves."""
        unsent, self._unsent = self._unsent, {}
        for to, forwards in unsent.items():
            self._send_to(to, forwards)

    def _send_to(self, to: int, forwards: list[Forwarding]) -> None:
        calls: list[ForwardedCall] = []
        size = 0
        for one in forwards:
            call = one.call
            grown = call_bytes(call)
            if calls and size + grown > self._forward_bytes:
                self._voice.say(to, Forward(self.session, calls))
                calls, size = [], 0
            calls.append(packed_call(one.serial, one.client, call.reply_bytes_max, call.request, call.principal.name))
            size += grown
        if calls:
            self._voice.say(to, Forward(self.session, calls))

    def take_back(self, to: int) -> list[int]:
        """Take back what has not left for that node or worker; its serial numbers."""
        return [one.serial for one in self._unsent.pop(to, ())]
