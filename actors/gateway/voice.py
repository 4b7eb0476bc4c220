"""Voice: what a Router's parts say to other nodes and workers, by their keys (`actors.messages.worker_keys`)."""

from typing import Any

from actors.messages.mailbox import Mailbox
from actors.messages.mailboxes import ToLinks
from actors.messages.peers import CutPeer, SendPeers


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
