"""What becomes of requests on a node that was removed from its cluster. A part of the Router."""

import logging
from typing import Final

from actors.messages.answering import send_answers
from actors.messages.call import Call
from actors.messages.peers import LeaderChanged, NodeRemoved
from quorate.protocol import ErrorWord, refusal

log = logging.getLogger("quorate.router")

NODE_ACTIONS: Final = 100
"""Actions from here on are about the node that is asked alone."""


class Removal:
    """Whether this node was removed, as the node `by` says, which leads; 0: it was not."""

    def __init__(self) -> None:
        self.by = 0
        self._is_alone = False

    def told(self, message: NodeRemoved) -> None:
        """Serve only those who ask about this node itself, since nobody else can be served here; or all again."""
        if message.node_id and not self.by:
            log.warning("node %d says that this node was removed: its clients are sent away", message.node_id)
        self.by, self._is_alone = message.node_id, False

    def leader_changed(self, message: LeaderChanged) -> None:
        """Serve again when somebody leads after nobody did: this node was added again."""
        if message.leader and self._is_alone:
            self.by = 0
        self._is_alone = not message.leader

    def without_refused(self, calls: list[Call]) -> list[Call]:
        """Refuse what needs the cluster; gives what is about this node alone."""
        reason = f"this node was removed from its cluster, as node {self.by} says: ask another"
        others = [call for call in calls if call.request.action < NODE_ACTIONS]
        send_answers([(call, refusal(call.request, ErrorWord.STOPPING, reason)) for call in others])
        return [call for call in calls if call.request.action >= NODE_ACTIONS]
