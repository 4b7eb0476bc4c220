"""What a leader does about the cluster itself: commands, the next step of a change, handing its place over. A machine.

A command that changes the members is answered when its record is committed. One change is under way at a time; what
follows of itself (a wanted node is met, one that caught up votes) is looked for on every heartbeat. Handing over:
the Router holds new requests, the owner settles what is open, and when the successor has everything it is told to be
elected at once, so that no request fails for it. A leader whose disk is full or does not answer hands over by itself.
"""

from dataclasses import dataclass
from typing import Any, Final

from actors.cluster.decisions import Decisions
from actors.cluster.leading import Leading
from actors.cluster.replication import Replication
from actors.cluster.replicator_settings import ReplicatorSettings
from actors.cluster.root_members import Balancing, next_members, to_be_removed
from actors.messages.call import Call, given_up, is_given_up
from actors.messages.calls import Answered
from actors.messages.lifecycle import EndWaits, HandedOver
from actors.messages.log import Drain, Drained, Propose, Undrain
from actors.messages.peers import SendPeers
from net.peers.messages import Hello, TakeOver
from quorate.actions import COMMANDS
from quorate.node_replies import DescribeReply
from quorate.protocol import Action, ClusterReply, Code, ErrorWord, Reply, done, refusal
from quorate.request_faults import host_fault
from storage.records import Member, Members

CHANGE_S: Final = 8.0
"""A change that is not committed by then is answered as unknown."""

FULL_PAUSE_S: Final = 3.0
"""A leader whose disk is full, or does not answer, and that could not hand over tries again after this."""

NEAR_RECORDS: Final = 1000
"""So much less of the log a node has that is as good a successor as another: it soon has the rest."""

NAMES: Final = tuple(command.name for command in COMMANDS if command.name is not None)
UNDER_WAY: Final = "another change of the members is under way; ask again when it is done"


@dataclass
class Transfer:
    """A leader's place on its way to another node: it is to go to `target`.

    `is_drained`: nothing is open any more; `is_told`: it was told so. `call` asked for it; `is_for_stop`: the worker
    waits for it.
    """

    target: int
    deadline: float
    call: Call | None = None
    is_for_stop: bool = False
    is_drained: bool = False
    is_told: bool = False


class ClusterAdmin:
    """Decides for one node. `hellos` are of the open links, `restless`: when links to a node came and went too often
    (monotonic s); `faults` say why there is none to a node: the host, who
    hears of both, puts them here.
    """

    def __init__(
        self,
        replication: Replication,
        settings: ReplicatorSettings,
        *,
        is_founded: bool,
        balancing: Balancing,
    ) -> None:
        self._settings = settings
        self._replication = replication
        self._membership = replication.log.membership
        self.hellos: dict[int, Hello] = {}
        self.faults: dict[int, str] = {}
        self.restless: dict[int, float] = {}
        self._is_founded = is_founded
        self._proposed: Members | None = None
        self._changing: tuple[Call, float] | None = None
        self._founding: Members | None = None
        self._transfer: Transfer | None = None
        self._full_until = 0.0
        self._hand_over_s = replication.limits.hand_over_s
        self._balancing = balancing
        self.root: Members | None = None
        self.founds_alone = False

    def found(self, members: Members) -> None:
        """Note that this node leads a cluster that is just being founded, with these members."""
        self._founding = members

    def joined(self) -> None:
        """Note that this node belongs to a cluster, and has said so to the others."""
        self._is_founded = True

    # -- commands ----------------------------------------------------------------------------------------------

    def command(self, now: float, call: Call) -> Decisions:
        """Do what a cluster request asks: of the leader, or of this node that it founds a cluster."""
        request = call.request
        if request.action == Action.NODE_INIT:
            return self._init(call)
        if request.action == Action.NODE_LEAVE:
            return self._leave(now, call)
        leading = self._replication.leading
        if leading is None:
            return _answer(call, refusal(request, ErrorWord.NO_LEADER, "this node does not lead"))
        what = request.command or "status"
        if what == "status":
            return _answer(call, self.status(call))
        if what not in NAMES:
            reason = f"command: {what!r} is none of {', '.join(NAMES)}"
            return _answer(call, refusal(request, ErrorWord.FIELD, reason))
        if self._membership.current is None:
            return _answer(call, refusal(request, ErrorWord.MEMBERSHIP, "the cluster is just being founded"))
        if what == "transfer":
            return self._transfer_asked(now, call, leading)
        if what == "balance":
            return self._balance(now, call, leading)
        if what != "upgrade" and request.node_id is None:
            return _answer(call, refusal(request, ErrorWord.FIELD, "node_id is missing"))
        if is_given_up(call):
            return _answer(call, given_up(request))
        if not self._may_change:
            return _answer(call, refusal(request, ErrorWord.MEMBERSHIP, UNDER_WAY))
        if what == "remove" and request.node_id == self._replication.log.node_id and len(self._membership.voters) > 1:
            return self._transfer_asked(now, call, leading)  # the next leader removes this one
        return self._change(now, call, what)

    def _change(self, now: float, call: Call, what: str) -> Decisions:
        request, membership = call.request, self._membership
        if what == "upgrade":
            if self._balancing.is_needed and self._settings.level <= membership.level:
                return _answer(call, self.status(call))  # of several shards some may have been upgraded before
            change = membership.upgrade(self._settings.level, self.hellos)
        elif what == "remove":
            assert request.node_id is not None
            change = membership.remove(request.node_id)
        elif request.host is None or request.port is None or request.node_id is None:
            return _answer(call, refusal(request, ErrorWord.FIELD, "host and port are missing"))
        elif (fault := host_fault(request.host)) is not None:
            return _answer(call, refusal(request, ErrorWord.FIELD, f"host {fault}"))
        else:
            change = membership.add(Member(request.node_id, request.host, request.port), self._balancing.shards)
        if change.members is None:
            return _answer(call, refusal(request, ErrorWord.MEMBERSHIP, change.refusal or ""))
        self._changing = (call, now + CHANGE_S)
        return self._propose(change.members)

    def _init(self, call: Call) -> Decisions:
        """Found a cluster without waiting for all listed nodes."""
        if self._membership.current is not None or self._is_founded or self._balancing.shard:
            reason = "this node belongs to a cluster already"
            return _answer(call, refusal(call.request, ErrorWord.MEMBERSHIP, reason))
        self.founds_alone = True
        return _answer(call, self.status(call))

    def _leave(self, now: float, call: Call) -> Decisions:
        """Take all clients off this node, and let it lead nothing while others vote; or, with "no", let it do so
        again."""
        word, facts = call.request.command, self._settings.facts
        if word not in ("yes", "no"):
            return _answer(call, refusal(call.request, ErrorWord.FIELD, "command: yes or no is wanted"))
        facts.is_leaving = word == "yes"
        decisions: Decisions = [EndWaits(facts.is_leaving)]
        return decisions + self._step_aside(now) + _answer(call, done(call.request, Reply))

    def _step_aside(self, now: float) -> Decisions:
        """Give the place to another, on a node that leaves and leads, where there is one that can have it."""
        leading = self._replication.leading
        if leading is None or not self._settings.facts.is_leaving or self._transfer is not None:
            return []
        target = self._best_successor(now, leading)
        return [] if target is None else self._begin(Transfer(target, now + self._hand_over_s))

    def describe(self, call: Call, now: float, unix: float, cluster_id: int) -> Reply:
        """Tell the nodes as this one sees them, to whoever may do anything at all."""
        own_id, current = self._membership.own.node_id, self._membership.current
        members = [own_id] if current is None else [member.node_id for member in current.members]
        rows: list[dict[str, Any]] = []
        for node_id in dict.fromkeys([own_id, *members]):
            hello = self.hellos.get(node_id)
            listeners = self._settings.listeners if node_id == own_id else hello.listeners if hello else ()
            told = [[one.protocol, one.host, one.port] for one in listeners]
            rows.append({"node_id": node_id, "role": self._role(now, node_id, members, hello), "listeners": told})
        about = {"cluster_id": f"{cluster_id:x}", "now": unix, "is_leaving": self._settings.facts.is_leaving}
        facts = self._settings.facts
        counted = {"said": facts.said, "heard": facts.heard}
        return done(call.request, DescribeReply, queue=None, node_id=own_id, nodes=rows, **counted, **about)

    def _role(self, now: float, node_id: int, members: list[int], hello: Hello | None) -> str:
        """Tell what a node is to clients that look for one."""
        own_id, leading = self._membership.own.node_id, self._replication.leading
        is_leaving = self._settings.facts.is_leaving if node_id == own_id else hello is not None and hello.is_leaving
        if is_leaving or node_id not in members:
            return "leaving"
        if node_id == self._replication.leader:
            return "leader"
        if node_id == own_id:
            return "follower"
        progress = None if leading is None else leading.progress.get(node_id)
        if hello is None:
            return "unlinked"
        if progress is not None and now - progress.heard_at > self._replication.limits.timeout_s:
            return "silent"
        return "follower"

    def status(self, call: Call) -> Reply:
        """Give the members, as objects."""
        return ClusterReply(
            action=call.request.action,
            code=Code.OK,
            seq=call.request.seq,
            leader_node_id=self._replication.leader or 0,
            members=self.members(),
            level=self._membership.level,
        )

    def members(self) -> list[dict[str, Any]]:
        """Give an object for each member and each node that is wanted; its `client` is where clients reach it."""
        current = self._membership.current
        if current is None:
            return []
        named = [(member, "voter" if member.is_voter else "catching up") for member in current.members]
        named += [(member, "wanted") for member in current.wanted]
        rows: list[dict[str, Any]] = []
        for member, role in named:
            row: dict[str, Any] = {
                "node_id": member.node_id,
                "host": member.host,
                "port": member.port,
                "role": role,
            }
            hello = self.hellos.get(member.node_id)
            if member.node_id == self._membership.own.node_id:
                settings = self._settings
                row |= {"client_host": settings.client_host, "client_port": settings.client_port}
                row |= {"version": settings.version}
            elif hello is not None:
                row |= {"client_host": hello.client_host, "client_port": hello.client_port, "version": hello.version}
            fault = self.faults.get(member.node_id)
            rows.append(row | self._progress_of(member.node_id) | ({} if fault is None else {"fault": fault}))
        return rows

    def _progress_of(self, node_id: int) -> dict[str, Any]:
        """How far it is behind (records), and whether its disk is full, as the leader knows it."""
        leading = self._replication.leading
        if leading is None:
            return {}
        if node_id == leading.log.node_id:
            return {"lag": 0, "is_full": leading.log.disk_full is not None}
        progress = leading.progress.get(node_id)
        return (
            {}
            if progress is None
            else {"lag": leading.log.tail.end.trans_id - progress.match, "is_full": progress.is_full}
        )

    @property
    def _may_change(self) -> bool:
        # One change at a time, so that the majorities before and after it overlap (4.1); and none before an entry of
        # this vote_id is committed, or two leaders could make one each (Ongaro's correction of 2015 to 4.1).
        leading = self._replication.leading
        return (
            leading is not None
            and self._proposed is None
            and self._transfer is None
            and leading.is_settled
            and self._membership.since <= leading.log.committed
        )

    @property
    def is_open(self) -> bool:
        """Whether `tick` is to be called as soon as anything happens."""
        if self._transfer is not None and self._transfer.is_drained and not self._transfer.is_told:
            return True
        return self._proposed is not None or (self._founding is not None and self._membership.current is None)

    def _propose(self, members: Members) -> Decisions:
        self._proposed = members
        return [Propose(self._replication.vote_id, members)]

    # -- what follows of itself --------------------------------------------------------------------------------

    def tick(self, now: float) -> Decisions:
        """Look for the next step."""
        leading, membership = self._replication.leading, self._membership
        if leading is None:
            return []
        decisions: Decisions = []
        is_in_log = self._proposed is not None and membership.current == self._proposed
        if is_in_log and membership.since <= leading.log.committed:
            self._proposed = None
            if self._changing is not None:
                call, _ = self._changing
                self._changing = None
                decisions += _answer(call, self.status(call))
        if self._changing is not None and now > self._changing[1]:
            call, _ = self._changing
            self._changing = None
            reason = "the change was not committed in time; it may still be"
            decisions += _answer(call, refusal(call.request, ErrorWord.UNKNOWN_OUTCOME, reason))
        if self._transfer is not None:
            return decisions + self._go_on_transferring(now, self._transfer, leading)
        is_leaving = self._settings.facts.is_leaving
        must_go = is_leaving or leading.log.disk_full is not None or leading.is_stuck(now)
        if must_go and now >= self._full_until and leading.is_settled:
            self._full_until = now + FULL_PAUSE_S
            target = self._best_successor(now, leading)
            if target is not None:
                return decisions + self._begin(Transfer(target, now + self._hand_over_s))
        return decisions + self._next_step(now, leading)

    def _next_step(self, now: float, leading: Leading) -> Decisions:
        if not self._may_change:
            return []
        if self._membership.current is None:
            return [] if self._founding is None else self._propose(self._founding)
        if not self._is_founded:
            return []  # other nodes must see in the hello which cluster this is
        step = self._membership.next_step(self.hellos, leading.progress, leading.log.tail.end.trans_id)
        return self._follow_root(now, leading) if step is None else self._propose(step)

    def _follow_root(self, now: float, leading: Leading) -> Decisions:
        """Make the members of shard 0 those of a shard beyond it; then spread the leaders over them."""
        current, root = self._membership.current, self.root
        assert current is not None
        if root is not None and root.cluster_id == current.cluster_id:
            gone = to_be_removed(current, root)
            if gone is not None and gone == leading.log.node_id and len(self._membership.voters) > 1:
                successor = self._best_successor(now, leading)  # the next leader removes this one
                return [] if successor is None else self._begin(Transfer(successor, now + self._hand_over_s))
            step = next_members(current, root, self._balancing.shard)
            if gone is not None:
                step = self._membership.remove(gone).members or step  # the last that votes stays until others do
            if step is not None:
                return self._propose(step)
        log = leading.log
        target = self._balancing.target(now, current, log.node_id, leading.progress, log.tail.end.trans_id)
        return [] if target is None else self._begin(Transfer(target, now + self._hand_over_s))

    # -- handing over ------------------------------------------------------------------------------------------

    def hand_over(self, now: float) -> Decisions:
        """Stop, as soon as another leads."""
        leading = self._replication.leading
        if self._transfer is not None:
            self._transfer.is_for_stop = True
            return []
        target = None if leading is None else self._best_successor(now, leading)
        if target is None:
            return [HandedOver()]
        return self._begin(Transfer(target, now + self._hand_over_s, is_for_stop=True))

    def _best_successor(self, now: float, leading: Leading) -> int | None:
        """Who has most of the log, of those that vote, live, and have room on their disks; of those that have nearly
        as much one that has all blocks, too."""
        candidates = [
            (progress.match, node_id, not progress.lacks_blocks)
            for node_id, progress in leading.progress.items()
            if node_id in self._membership.voters
            and now - progress.heard_at < self._balancing.heard_s
            and not progress.is_full
        ]
        near = max(candidates)[0] - NEAR_RECORDS if candidates else 0
        best = [(has_all, match, node_id) for match, node_id, has_all in candidates if match >= near]
        return max(best)[-1] if best else None

    def _transfer_asked(self, now: float, call: Call, leading: Leading) -> Decisions:
        request = call.request
        if request.command == "transfer" and request.shard not in (None, self._balancing.shard):
            return _answer(call, refusal(request, ErrorWord.FIELD, f"shard: there is no shard {request.shard}"))
        is_named = request.command == "transfer" and request.node_id is not None
        target = request.node_id if is_named else self._best_successor(now, leading)
        progress = None if target is None else leading.progress.get(target)
        fault = None
        if self._transfer is not None:
            fault = "this node hands its place over already"
        elif target == leading.log.node_id:
            fault = f"node {target} leads already"
        elif target is None:
            fault = "there is no other node that could lead"
        elif target not in self._membership.voters:
            fault = f"node {target} does not vote, so it can't lead"
        elif progress is None or now - progress.heard_at >= self._balancing.heard_s:
            fault = f"node {target} was not heard for {self._balancing.heard_s:g} s, so it can't take over"
        if fault is not None:
            return _answer(call, refusal(request, ErrorWord.MEMBERSHIP, fault))
        assert target is not None
        return self._begin(Transfer(target, now + self._hand_over_s, call))

    def _balance(self, now: float, call: Call, leading: Leading) -> Decisions:
        """Give the place to the node that should have it."""
        current, shard = self._membership.current, self._balancing.shard
        target = None if current is None else self._balancing.wanted(current, leading.log.node_id)
        if target is None:
            return _answer(call, self.status(call))
        fault = self._balancing.fault(now, target, leading.progress.get(target), leading.log.tail.end.trans_id)
        if self._transfer is not None:
            fault = f"node {leading.log.node_id} hands its place over already"
        if fault is not None:
            return _answer(call, refusal(call.request, ErrorWord.MEMBERSHIP, f"shard {shard} stays: {fault}"))
        return self._begin(Transfer(target, now + self._hand_over_s, call))

    def _begin(self, transfer: Transfer) -> Decisions:
        self._transfer = transfer
        return [Drain(self._replication.vote_id)]

    def drained(self, now: float, message: Drained) -> Decisions:
        """Nothing is open any more."""
        leading = self._replication.leading
        if self._transfer is None or leading is None or message.vote_id != self._replication.vote_id:
            return []
        self._transfer.is_drained = True
        return leading.pushing.push_late(now) + self._go_on_transferring(now, self._transfer, leading)

    def _go_on_transferring(self, now: float, transfer: Transfer, leading: Leading) -> Decisions:
        if now > transfer.deadline:
            self._transfer = None
            reason = f"node {transfer.target} did not take over in {self._hand_over_s:g} s; this node leads on"
            return [leading.advanced(now), Undrain(), *self._ended(transfer, reason)]
        progress = leading.progress.get(transfer.target)
        is_ready = transfer.is_drained and progress is not None and progress.match == leading.log.tail.end.trans_id
        if not is_ready or transfer.is_told:
            return []
        transfer.is_told = True
        leading.give_up_lease()
        return [leading.advanced(now), SendPeers((transfer.target,), TakeOver(self._replication.vote_id))]

    def _ended(self, transfer: Transfer, failure: str | None) -> Decisions:
        decisions: Decisions = [HandedOver()] if transfer.is_for_stop else []
        if transfer.call is None:
            return decisions
        request = transfer.call.request
        if failure is not None:
            reply = refusal(request, ErrorWord.MEMBERSHIP, failure)
        elif request.command == "remove":
            reason = "the leader has handed its place over first; the next one does it: ask again"
            reply = refusal(request, ErrorWord.NO_LEADER, reason)
        else:
            reply = self.status(transfer.call)
        return decisions + _answer(transfer.call, reply)

    def deposed(self) -> Decisions:
        """Forget what a leader was asked: this node does not lead any more, and who does is known, or will not be
        soon."""
        self._proposed = self._founding = None
        self._balancing.deposed()
        decisions: Decisions = []
        if self._transfer is not None:
            transfer, self._transfer = self._transfer, None
            leader = self._replication.leader
            is_other = leader is not None and leader != transfer.target
            failure = f"node {leader} has taken over instead of node {transfer.target}" if is_other else None
            decisions += self._ended(transfer, failure)
        if self._changing is not None:
            call, _ = self._changing
            self._changing = None
            membership, named = self._membership, call.request.node_id or 0
            is_settled = membership.current is not None and membership.since <= self._replication.log.committed
            is_gone = membership.current is not None and membership.current.find(named) is None
            if call.request.command == "remove" and is_settled and is_gone:
                reply = self.status(call)
            else:
                reason = "this node stopped leading before the change was committed; it may still be"
                reply = refusal(call.request, ErrorWord.UNKNOWN_OUTCOME, reason)
            decisions += _answer(call, reply)
        return decisions


def _answer(call: Call, reply: Reply) -> Decisions:
    return [Answered([(call, reply)])]
