"""What must stand in ZooKeeper for one shard, given what stands there: a machine. For MetaQ's clients.

| path below the root | data | of |
|---|---|---|
| /brokers/ids/k | `meta://host:port` | the shard's leader; stays |
| /brokers/ids/k/quorate | vote_id and cluster_id | the leader that registered last; stays: the *guard* |
| /brokers/ids/k/master, /master_config_checksum | the same address; a number | the leader |
| /brokers/ids/k/slaveN | `meta://host:port` | follower N |
| /brokers/topics/T/k-m | number of partitions | the leader |
| /brokers/topics-pub/T/k-m, topics-sub/T/k-m | `{"numParts":2,"broker":"k-m"}` | the leader |
| /brokers/topics-sub/T/k-sN | the same, of `k-sN` | follower N |

All but the first two go with the session of their node. Rules:

- A leader *claims* the shard: one transaction raises the guard's vote_id, and replaces what other leaders left of
  /brokers/ids/k. All that it does later begins with a check of the guard's version, so a leader of the past, which may
  not know that it is one, is refused at each step.
- What stands under a name that is this node's now is replaced if it goes with another session: that may end later.
- A node that leads no more takes away what it registered, unless another one has claimed the shard since.
- After a transaction that failed, or of which nobody knows whether it was done, all is read anew.

Times are monotonic seconds.
"""

from collections.abc import Iterator
from itertools import islice
from typing import Final, Literal, NamedTuple
from zlib import crc32

from actors.messages.registering import Node, Op, ReadTree, Transact, Transacted, TreeRead

OPS_MAX: Final = 300
"""Operations of one transaction: jute.maxbuffer, 1 MB, holds some thousands with names of 255 bytes."""

RETRY_S: Final = 1.0
"""After something went wrong it is tried again."""

SUPERSEDED_S: Final = 10.0
"""After another leader was found to be registered, it is looked whether it still is."""

VERIFY_S: Final = 60.0
"""So often it is looked whether all is still there: somebody may take it away by hand."""

DOUBT_S: Final = 10.0
"""A follower that knows of no leader stays registered for so long: elections are shorter."""

ANOTHER_CLUSTER: Final = "another cluster is registered there: {} names it; remove that node if that cluster is gone"


class TopicFacts(NamedTuple):
    """Of a topic: how many partitions it has, and what is accepted."""

    partitions: int
    accept_append: bool = True
    accept_read: bool = True


class Place(NamedTuple):
    """Where a worker's broker is registered. `address`: `meta://host:port`."""

    root: str
    shard: int
    node_id: int
    address: str


Standing = Literal["leads", "follows", "unknown"]


class Registration:
    """Of one shard on one node. `fault`: why nothing is registered now, for people; None: all is there, or will be.

    `is_whole`: all that is to be there is.
    """

    def __init__(self, place: Place) -> None:
        self.place = place
        self.fault: str | None = None
        self.is_whole = False
        self._names = _Names(place)
        self._cluster_id = self._vote_id = self._led = 0
        self._standing: Standing = "unknown"
        self._topics: dict[str, TopicFacts] | None = None
        self._wanted: dict[str, bytes] = {}
        self._session = self._serial = 0
        self._seen: TreeRead | None = None
        self._asked: ReadTree | Transact | None = None
        self._at = self._verify_at = 0.0

    # -- what is known ---------------------------------------------------------------------------------------------

    def stands(self, now: float, standing: Standing, vote_id: int, cluster_id: int) -> None:
        """Note who leads the shard: this node, under that vote_id, another one, or nobody that is known."""
        if standing != "leads":
            vote_id = 0
        if (standing, vote_id, cluster_id) == (self._standing, self._vote_id, self._cluster_id):
            return
        doubts = standing == "unknown" and self._standing == "follows"
        self._standing, self._vote_id, self._cluster_id = standing, vote_id, cluster_id
        self._led = vote_id or self._led
        self._look_anew(now + DOUBT_S if doubts else now)

    def topics_are(self, now: float, topics: dict[str, TopicFacts]) -> None:
        """Note which topics the shard has."""
        if topics != self._topics:
            self._topics = topics
            self._wanted = {}
            self._at = min(self._at, now)

    def session(self, now: float, session: int) -> None:
        """Note the session with ZooKeeper; 0: it can't be reached now."""
        self._session, self._asked = session, None
        self._look_anew(now)

    def _look_anew(self, at: float) -> None:
        self._seen, self._wanted, self.is_whole, self._at = None, {}, False, at

    def read(self, now: float, message: TreeRead) -> None:
        """Note what stands there."""
        if not isinstance(self._asked, ReadTree) or message.serial != self._asked.serial:
            return
        self._asked = None
        if message.fault is not None:
            self._fail(now, message.fault, RETRY_S)
        else:
            self._seen, self._verify_at, self.fault = message, now + VERIFY_S, None

    def transacted(self, now: float, message: Transacted) -> None:
        """Note what became of a transaction."""
        asked = self._asked
        if not isinstance(asked, Transact) or message.serial != asked.serial:
            return
        self._asked = None
        if message.fault is not None or message.conflict:
            self._fail(now, message.fault or "something else was registered meanwhile", RETRY_S)
        elif self._seen is not None:
            _did(self._seen, asked.ops)

    def _fail(self, now: float, fault: str, in_s: float) -> None:
        self._look_anew(now + in_s)
        self.fault = fault

    # -- what is to be done ----------------------------------------------------------------------------------------

    @property
    def next_at(self) -> float:
        """When `next` has something to say; infinity: not before something is noted."""
        return float("inf") if self._asked is not None or not self._session else self._at

    def next(self, now: float) -> ReadTree | Transact | None:
        """Say what is to be read, or done, now. Only one is asked at a time."""
        if self._asked is not None or not self._session or now < self._at:
            return None
        if self._seen is None or now >= self._verify_at:
            self._seen = None
            names = self._names
            self._asked = ReadTree(self._next_serial(), names.of_broker, names.folders, self._leaves())
            return self._asked
        ops = self._ops(now, self._seen)
        if ops:
            self._asked = Transact(self._next_serial(), ops)
        elif self.fault is None:
            self.is_whole, self._at = True, self._verify_at
        return self._asked

    def _next_serial(self) -> int:
        self._serial += 1
        return self._serial

    def _leaves(self) -> list[str]:
        """Give the names below topics that are read: also those of a lead of this process."""
        names = self._names
        return [names.master, names.slave] if self._led else [names.slave]

    def _ops(self, now: float, seen: TreeRead) -> list[Op]:
        """Say what is to be done next; nothing, if all is there, or nothing may be done: then `fault` says why."""
        names, leads = self._names, self._standing == "leads"
        guard = seen.nodes.get(names.guard)
        vote_id, cluster_id = _read_guard(guard)
        if guard is not None and cluster_id != self._cluster_id:
            self._fail(now, ANOTHER_CLUSTER.format(names.guard), SUPERSEDED_S)
            return []
        if leads and vote_id > self._vote_id:
            self._fail(now, "a later leader is registered there", SUPERSEDED_S)
            return []
        if leads and (guard is None or vote_id < self._vote_id):
            return self._claim(seen, guard)
        if self._standing == "follows" and names.broker not in seen.nodes:
            self._fail(now, "the shard's leader is not registered yet", RETRY_S)
            return []
        is_last = guard is not None and vote_id == self._led
        changes = [*islice(self._changes(seen, takes_away=leads or is_last), OPS_MAX)]
        if not any(names.is_leaders(op.path) for op in changes) and not leads:
            return changes
        assert guard is not None, "who leads has claimed the shard"
        return [Op("check", names.guard, version=guard.version), *changes] if changes else []

    def _claim(self, seen: TreeRead, guard: Node | None) -> list[Op]:
        """Raise the guard, and replace what others left of the broker."""
        names = self._names
        data, address = f"{self._vote_id} {self._cluster_id:x}".encode(), self.place.address.encode()
        ops = [Op("set" if names.broker in seen.nodes else "create", names.broker, address)]
        ops.append(Op("create", names.guard, data) if guard is None else Op("set", names.guard, data, guard.version))
        return [*ops, *(op for path, data in self._of_broker().items() for op in _put(seen, path, data))]

    def _changes(self, seen: TreeRead, *, takes_away: bool) -> Iterator[Op]:
        """Go through what is to be changed. `takes_away`: also of what a leader has registered."""
        wanted = self._all_wanted()
        for path, data in wanted.items():
            topic, _, _leaf = path.rpartition("/")
            folder, _, name = topic.rpartition("/")
            known = seen.names.get(folder)
            if known is not None and name not in known:
                known.add(name)  # it is made once
                yield Op("create", topic)
            yield from _put(seen, path, data)
        for path, node in seen.nodes.items():
            if path in wanted or path in (self._names.broker, self._names.guard):
                continue
            if not self._names.is_leaders(path) or (takes_away and (node.is_own or self._standing == "leads")):
                yield Op("delete", path)

    # -- what is to be there ---------------------------------------------------------------------------------------

    def _all_wanted(self) -> dict[str, bytes]:
        if not self._wanted:
            topics = self._topics or {}
            self._wanted = {**self._of_broker(), **dict(self._of_topics(topics))}
        return self._wanted

    def _of_broker(self) -> dict[str, bytes]:
        address, broker = self.place.address.encode(), self._names.broker
        if self._standing == "follows":
            return {f"{broker}/slave{self.place.node_id}": address}
        if self._standing == "unknown":
            return {}
        checksum = crc32(repr(sorted((self._topics or {}).items())).encode())
        return {f"{broker}/master": address, f"{broker}/master_config_checksum": b"%d" % checksum}

    def _of_topics(self, topics: dict[str, TopicFacts]) -> Iterator[tuple[str, bytes]]:
        leads, (all_of, pub, sub) = self._standing == "leads", self._names.folders
        leaf = self._names.master if leads else self._names.slave
        for name, its in topics.items() if self._standing != "unknown" else ():
            if not fits_path(name):
                continue
            data = b'{"numParts":%d,"broker":"%b"}' % (its.partitions, leaf.encode())
            if its.accept_read:
                yield f"{sub}/{name}/{leaf}", data
            if leads and its.accept_append:
                yield f"{pub}/{name}/{leaf}", data
            if leads and (its.accept_append or its.accept_read):
                yield f"{all_of}/{name}/{leaf}", b"%d" % its.partitions


class _Names:
    """The paths and names that one shard has on one node."""

    def __init__(self, place: Place) -> None:
        self.broker = f"{place.root}/brokers/ids/{place.shard}"
        self.guard = f"{self.broker}/quorate"
        self.folders = [f"{place.root}/brokers/{name}" for name in ("topics", "topics-pub", "topics-sub")]
        self.master = f"{place.shard}-m"
        self.slave = f"{place.shard}-s{place.node_id}"
        its = ("master", "master_config_checksum", f"slave{place.node_id}")
        self.of_broker = [self.broker, self.guard, *(f"{self.broker}/{name}" for name in its)]

    def is_leaders(self, path: str) -> bool:
        """Whether only a leader registers under that path."""
        return path.rpartition("/")[2] in (self.master, "master", "master_config_checksum")


def fits_path(name: str) -> bool:
    """Whether a topic's name may be one in a path of ZooKeeper's."""
    return name not in (".", "..") and not any(
        one == "/" or "\ud800" <= one <= "\uf8ff" or "\ufff0" <= one <= "\uffff" for one in name
    )


def _put(seen: TreeRead, path: str, data: bytes) -> Iterator[Op]:
    """Have a node of this session stand there, with that."""
    node = seen.nodes.get(path)
    if node is not None and node.is_own:
        if node.data != data:
            yield Op("set", path, data)
        return
    if node is not None:
        yield Op("delete", path)
    yield Op("create", path, data, is_ephemeral=True)


def _did(seen: TreeRead, ops: list[Op]) -> None:
    """Note that this was done."""
    for op in ops:
        folder, _, name = op.path.rpartition("/")
        if op.kind == "delete":
            seen.nodes.pop(op.path, None)
        elif op.kind == "set":
            before = seen.nodes[op.path]
            seen.nodes[op.path] = Node(op.data, before.version + 1, before.is_own)
        elif op.kind == "create" and folder in seen.names:
            seen.names[folder].add(name)
        elif op.kind == "create":
            seen.nodes[op.path] = Node(op.data, 0, op.is_ephemeral)


def _read_guard(guard: Node | None) -> tuple[int, int]:
    """Read the vote_id and the cluster_id; 0 and 0 where nothing stands there that can be read."""
    try:
        vote_id, cluster_id = (b"" if guard is None else guard.data).split()
        return int(vote_id), int(cluster_id, 16)
    except ValueError:
        return 0, 0
