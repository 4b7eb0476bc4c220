"""What a leader does about the cluster itself: commands, the next step of a change, handing its place over. A machine.

A command that changes the members is answered when its record is committed. One change is under way at a time; what
follows of itself (a wanted node is met, one that caught up votes) is looked for on every heartbeat. Handing over:
the Router holds new requests, the owner settles what is open, and when the successor has everything it is told to be
elected at once, so that no request fails for it.
"""

from dataclasses import dataclass
from typing import Any, Final

from actors.cluster.membership import Membership
from actors.cluster.replicated_log import ELECTOR, OWNER, PEERS
from actors.cluster.replication import Replication
from actors.messages.calls import Answered, Call
from actors.messages.election import VotersChanged
from actors.messages.lifecycle import HandedOver, HandOver
from actors.messages.log import Drain, Drained, Propose, Undrain
from actors.messages.peers import SendPeers
from net.peers.messages import Hello, TakeOver
from quorate.protocol import Action, ClusterReply, Code, ErrorWord, Reply, refusal
from storage.records import Member, Members

ROUTER: Final = "router"
HAND_OVER_S: Final = 2.0
"""A successor that does not lead by then is given up, and this node serves on."""

CHANGE_S: Final = 8.0
"""A change that is not committed by then is answered as unknown."""


@dataclass
class Transfer:
    """This node's place is to go to `target`. `drained`: nothing is open any more; `is_told`: it was told so."""

    target: int
    deadline: float
    call: Call | None
    reply_to: Any | None
    drained: bool = False
    is_told: bool = False


class ClusterAdmin:
    """Decides for the node's Replicator; sends through `replication.out`.

    `hellos` are of the open links, `faults` say why there is none to a node.
    """

    def __init__(
        self, replication: Replication, membership: Membership, hellos: dict[int, Hello], faults: dict[int, str]
    ) -> None:
        self._replication = replication
        self._membership = membership
        self._hellos = hellos
        self._faults = faults
        self._proposed: Members | None = None
        self._changing: tuple[Call, float] | None = None
        self.transfer: Transfer | None = None
        self.founding: Members | None = None
        self.is_founded = False

    # -- commands ----------------------------------------------------------------------------------------------

    def command(self, now: float, call: Call) -> None:
        """Do what a cluster request asks: of the leader, or of this node that it founds a cluster."""
        request = call.request
        if request.action == Action.NODE_INIT:
            return self._found(call)
        if not self._replication.is_leading:
            return self._answer(call, refusal(request, ErrorWord.NO_LEADER, "this node does not lead"))
        what = request.command or "status"
        if what == "status":
            return self._answer(call, self.status(call))
        if what not in ("add", "remove", "transfer"):
            reason = f"command: {what!r} is none of status, add, remove, transfer"
            return self._answer(call, refusal(request, ErrorWord.FIELD, reason))
        if self._membership.current is None:
            return self._answer(call, refusal(request, ErrorWord.MEMBERSHIP, "the cluster is just being founded"))
        if what == "transfer":
            return self._transfer(now, call)
        if request.node_id is None:
            return self._answer(call, refusal(request, ErrorWord.FIELD, "node_id is missing"))
        if not self._may_change:
            reason = "another change of the members is under way; ask again when it is done"
            return self._answer(call, refusal(request, ErrorWord.MEMBERSHIP, reason))
        if what == "remove" and request.node_id == self._replication.node_id and len(self._membership.voters) > 1:
            return self._transfer(now, call)  # the next leader removes this one
        if what == "add":
            if request.host is None or request.port is None:
                return self._answer(call, refusal(request, ErrorWord.FIELD, "host and port are missing"))
            change = self._membership.add(Member(request.node_id, request.host, request.port))
        else:
            change = self._membership.remove(request.node_id)
        if change.members is None:
            return self._answer(call, refusal(request, ErrorWord.MEMBERSHIP, change.refusal or ""))
        self._changing = (call, now + CHANGE_S)
        self._propose(change.members)
        return None

    def _found(self, call: Call) -> None:
        """Found a cluster without waiting for all listed nodes."""
        if self._membership.current is not None or self.is_founded:
            reason = "this node belongs to a cluster already"
            return self._answer(call, refusal(call.request, ErrorWord.MEMBERSHIP, reason))
        self._replication.out.append((ELECTOR, VotersChanged(frozenset({self._replication.node_id}))))
        return self._answer(call, self.status(call))

    def status(self, call: Call) -> Reply:
        """The members, as objects."""
        return ClusterReply(
            action=call.request.action,
            code=Code.OK,
            seq=call.request.seq,
            leader_node_id=self._replication.leader or 0,
            members=self.members(),
        )

    def members(self) -> list[dict[str, Any]]:
        """An object for each member and each node that is wanted."""
        current = self._membership.current
        if current is None:
            return []
        named = [(member, "voter" if member.is_voter else "catching up") for member in current.members]
        named += [(member, "wanted") for member in current.wanted]
        rows: list[dict[str, Any]] = []
        for member, role in named:
            row = {"node_id": member.node_id, "host": member.host, "port": member.port, "role": role}
            fault = self._faults.get(member.node_id)
            rows.append(row if fault is None else {**row, "fault": fault})
        return rows

    @property
    def _may_change(self) -> bool:
        replication = self._replication
        return (
            replication.is_leading
            and self._proposed is None
            and self.transfer is None
            and replication.has_led
            and self._membership.since <= replication.committed
        )

    @property
    def is_open(self) -> bool:
        """Whether `tick` is to be called as soon as anything happens."""
        return self._proposed is not None or (self.founding is not None and self._membership.current is None)

    def _propose(self, members: Members) -> None:
        self._proposed = members
        self._replication.out.append((OWNER, Propose(self._replication.vote_id, members)))

    # -- what follows of itself --------------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        """Look for the next step."""
        replication, membership = self._replication, self._membership
        if not replication.is_leading:
            return
        is_in_log = self._proposed is not None and membership.current == self._proposed
        if is_in_log and membership.since <= replication.committed:
            self._proposed = None
            if self._changing is not None:
                call, _ = self._changing
                self._changing = None
                self._answer(call, self.status(call))
        if self._changing is not None and now > self._changing[1]:
            call, _ = self._changing
            self._changing = None
            reason = "the change was not committed in time; it may still be"
            self._answer(call, refusal(call.request, ErrorWord.UNKNOWN_OUTCOME, reason))
        if self.transfer is not None:
            self._go_on_transferring(now)
        elif self._may_change:
            if membership.current is None:
                if self.founding is not None:
                    self._propose(self.founding)
                return
            if not self.is_founded:
                return  # other nodes must see in the hello which cluster this is
            step = membership.next_step(self._hellos, replication.progress, replication.tail.end.trans_id)
            if step is not None:
                self._propose(step)

    # -- handing over ------------------------------------------------------------------------------------------

    def hand_over(self, now: float, message: HandOver) -> None:
        """This node is about to stop: let the follower lead that has the most."""
        target = self._best_successor(now)
        if self.transfer is not None and self.transfer.reply_to is None:
            self.transfer.reply_to = message.reply_to
        elif not self._replication.is_leading or target is None:
            message.reply_to.tell(HandedOver())
        else:
            self._begin(Transfer(target, now + HAND_OVER_S, None, message.reply_to))

    def _best_successor(self, now: float) -> int | None:
        candidates = [
            (its.match, node_id)
            for node_id, its in self._replication.progress.items()
            if node_id in self._membership.voters and now - its.heard_at < 1.0
        ]
        return max(candidates)[1] if candidates else None

    def _transfer(self, now: float, call: Call) -> None:
        request = call.request
        target = request.node_id if (request.command == "transfer" and request.node_id) else self._best_successor(now)
        fault = None
        if self.transfer is not None:
            fault = "this node hands its place over already"
        elif target == self._replication.node_id:
            fault = f"node {target} leads already"
        elif target is None:
            fault = "there is no other node that could lead"
        elif target not in self._membership.voters:
            fault = f"node {target} does not vote, so it can't lead"
        if fault is not None:
            return self._answer(call, refusal(request, ErrorWord.MEMBERSHIP, fault))
        assert target is not None
        return self._begin(Transfer(target, now + HAND_OVER_S, call, None))

    def _begin(self, transfer: Transfer) -> None:
        self.transfer = transfer
        self._replication.out.append((ROUTER, Drain(self._replication.vote_id)))

    def drained(self, now: float, message: Drained) -> None:
        """Nothing is open any more."""
        if self.transfer is not None and message.vote_id == self._replication.vote_id:
            self.transfer.drained = True
            self._go_on_transferring(now)

    def _go_on_transferring(self, now: float) -> None:
        transfer, replication = self.transfer, self._replication
        assert transfer is not None
        if now > transfer.deadline:
            self.transfer = None
            replication.tell_owner(now)
            replication.out.append((ROUTER, Undrain()))
            reason = f"node {transfer.target} did not take over in {HAND_OVER_S:g} s; this node leads on"
            self._end(transfer, reason)
            return
        its = replication.progress.get(transfer.target)
        is_ready = transfer.drained and its is not None and its.match == replication.tail.end.trans_id
        if is_ready and not transfer.is_told:
            transfer.is_told = True
            replication.is_lease_given_up = True  # it may be elected at any time from now on, however late it hears
            replication.out.append((PEERS, SendPeers((transfer.target,), TakeOver(replication.vote_id))))

    def _end(self, transfer: Transfer, failure: str | None) -> None:
        if transfer.reply_to is not None:
            transfer.reply_to.tell(HandedOver())
        if transfer.call is None:
            return
        request = transfer.call.request
        if failure is not None:
            self._answer(transfer.call, refusal(request, ErrorWord.MEMBERSHIP, failure))
        elif request.command == "remove":
            reason = "the leader has handed its place over first; the next one does it: ask again"
            self._answer(transfer.call, refusal(request, ErrorWord.NO_LEADER, reason))
        else:
            self._answer(transfer.call, self.status(transfer.call))

    def deposed(self) -> None:
        """This node does not lead any more."""
        self._proposed = None
        if self.transfer is not None:
            transfer, self.transfer = self.transfer, None
            self._end(transfer, None)
        if self._changing is not None:
            call, _ = self._changing
            self._changing = None
            reason = "this node stopped leading before the change was committed; it may still be"
            self._answer(call, refusal(call.request, ErrorWord.UNKNOWN_OUTCOME, reason))

    @staticmethod
    def _answer(call: Call, reply: Reply) -> None:
        call.reply_to.tell(Answered([(call, reply)]))
