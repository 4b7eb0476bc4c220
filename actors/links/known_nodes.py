"""KnownNodes: who this node is, whom it knows, and who may come. A machine."""

from actors.links.contact import Contact
from actors.messages.peers import Introduce
from net.peers.greeting import Greeting
from net.peers.messages import PEER_MAJOR, Hello
from quorate.request_faults import host_fault
from storage.records import Member
from storage.vote_file import Identity


class KnownNodes:
    """One worker's. `greeting` is how it introduces itself, for node `node_id`, and `said` what its shard's log knows.

    `led`: the node that leads each of the other shards, 0: this one.
    """

    def __init__(self, greeting: Greeting, node_id: int) -> None:
        self.greeting = greeting
        self.said = Introduce(Member(node_id, "", 0), Identity(0, node_id, 0), (), False)
        self.led: dict[int, int] = {}

    @property
    def node_id(self) -> int:
        """This node's number."""
        return self.said.identity.node_id

    @property
    def cluster_id(self) -> int:
        """The cluster's number, 0: this node belongs to none yet."""
        return self.said.identity.cluster_id

    @property
    def mates(self) -> dict[int, Member]:
        """The other nodes, by their numbers."""
        return {member.node_id: member for member in self.said.nodes if member.node_id != self.node_id}

    def member(self, node_id: int) -> Member | None:
        """Know a node that this one's log or configuration names."""
        return next((one for one in self.said.nodes if one.node_id == node_id), None)

    def addresses(self, member: Member, shard: int | None = None) -> list[tuple[str, int]]:
        """Where a member's worker is dialled, of the own shard or of another: as configuration and log say."""
        shift = 0 if shard is None else shard - self.greeting.shard
        at = (member.host, member.port)
        listed = self.said.addresses.get(member.node_id, at)
        return [(host, port + shift) for host, port in dict.fromkeys((listed, at))]

    def hello(self, to: int, to_shard: int) -> Hello:
        """To a worker of node `to`, 0: of this one."""
        own, at = self.said.identity, self.said.own
        if not to:
            return self.greeting.hello(own.node_id, own.node_id, to_shard)
        hello = self.greeting.hello(
            own.node_id,
            to,
            to_shard,
            cluster_id=own.cluster_id,
            disk_id=own.disk_id,
            at=(at.host, at.port),
            is_leaving=self.said.is_leaving,
        )
        hello.is_removed = self.was_removed(to)
        return hello

    def was_removed(self, node_id: int) -> bool:
        """Whether this node leads a cluster that had that node, and has it no more."""
        return self.member(node_id) is None and any(one.node_id == node_id for one in self.said.removed)

    def wants(self, contact: Contact) -> bool:
        """Whether a link is to be kept to it: always, but for a far worker that neither leads its shard nor asks."""
        if contact.is_near or contact.is_mate:
            return True
        leads = self.led.get(contact.shard) == contact.node_id
        return self.cluster_id != 0 and (leads or contact.asks)

    def other_fault(self, contact: Contact, hello: Hello, *, is_proven: bool) -> str | None:
        """Why who says `hello` is not the contact that was dialled, or not one to talk with."""
        if contact.is_mate:
            fault = self.fault(hello, is_proven=is_proven)
            if fault is not None:
                return fault
        elif hello.major != PEER_MAJOR:
            return f"it speaks version {hello.major} of the peers' protocol, this node version {PEER_MAJOR}"
        node_id = contact.node_id or self.node_id
        if hello.node_id != node_id:
            return f"it is node {hello.node_id}, not node {node_id}"
        if hello.shard != contact.shard:
            return f"it is shard {hello.shard}'s worker, not shard {contact.shard}'s"
        return None

    def fault(self, hello: Hello, *, is_proven: bool = False) -> str | None:
        """Why a node that says `hello` is not to be talked with; None if it belongs to this one's cluster or nodes.

        `is_proven`: it has the cluster's secret or a certificate. Of others only those come in that this node's log or
        configuration names, with the disk that they are known by; but a proven one is let in though this node's log
        does not know it (yet): the log may be behind, and that node may lead (Ongaro's dissertation, 4.1). A node that
        belongs to no cluster yet lets everybody in: whoever has one may adopt it.
        """
        said, own = self.said, self.said.identity
        node_type, shard, shards = self.greeting.node_type, self.greeting.shard, self.greeting.shards
        if hello.major != PEER_MAJOR:
            return f"it speaks version {hello.major} of the peers' protocol, this node version {PEER_MAJOR}"
        if hello.node_type != node_type:
            return f"it is of cluster number (node_type) {hello.node_type}, this node of {node_type}"
        if hello.shards != shards:
            return (
                f"its queues are spread over {hello.shards} shards (shards = {hello.shards}), and this node's over "
                f"{shards}: which queue is where depends on that, so all nodes of a cluster have the same number"
            )
        if hello.host and (wrong := host_fault(hello.host)) is not None:
            return f"its host {wrong}"
        if hello.shard >= hello.shards:
            return f"it says that it is shard {hello.shard} of {hello.shards}"
        if hello.to_shard != shard:
            return f"it expects the worker of shard {hello.to_shard} here, and this is shard {shard}'s: a port is wrong"
        if hello.to != own.node_id:
            return f"it expects node {hello.to} here, and this is node {own.node_id}"
        if hello.node_id == own.node_id:
            return f"it says that it is node {own.node_id}, and that is this node"
        if hello.cluster_id and own.cluster_id and hello.cluster_id != own.cluster_id:
            return f"it belongs to another cluster ({hello.cluster_id:x}), this node to {own.cluster_id:x}"
        if hello.cluster_id == own.cluster_id and hello.level < said.level:
            return (
                f"it understands feature level {hello.level}, and this cluster uses {said.level}: "
                "run a newer version there"
            )
        known = self.member(hello.node_id)
        belongs = hello.cluster_id != 0 and hello.cluster_id == own.cluster_id
        if hello.shard != shard:  # it has requests for this shard; its disk is another's, and says nothing here
            if not belongs:
                return "it belongs to no cluster yet"
            return None if is_proven or known is not None else f"node {hello.node_id} is no member of this cluster"
        if any((one.node_id, one.disk_id) == (hello.node_id, hello.disk_id) for one in said.removed):
            return f"node {hello.node_id} was removed from this cluster"
        if said.accepts_all or (belongs and is_proven):
            return None
        if known is None and belongs and hello.node_id in said.addresses:
            return None  # its configuration names it, and the log may be behind
        if known is None:
            return f"node {hello.node_id} is no member of this cluster: it was not added yet"
        if known.disk_id and hello.disk_id != known.disk_id:
            return (
                f"node {hello.node_id} comes with another disk than the one it joined with, so it can't remember how "
                f"it voted: remove node {hello.node_id} from the cluster and add it again"
            )
        return None
