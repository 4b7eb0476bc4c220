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
- After a transaction that failed, or of which nobody knows whether it was done, all is read anew. A path for which
  transactions were refused again and again is left out for a while, and named; the rest is registered.

Times are monotonic seconds.
"""

import re
from collections.abc import Iterator
from typing import Final, Literal, NamedTuple
from zlib import crc32

from actors.messages.registering import Node, Op, ReadTree, Refused, TopicFacts, Transact, Transacted, TreeRead

OPS_MAX: Final = 300
"""Operations of one transaction: jute.maxbuffer, 1 MB, holds some thousands with names of 255 bytes."""

RETRY_S: Final = 1.0
"""After something went wrong it is tried again."""

SUPERSEDED_S: Final = 10.0
"""After another leader was found to be registered, it is looked whether it still is."""

VERIFY_S: Final = 300.0
"""So often it is looked whether all is still there: somebody may take it away by hand."""

LOOKS_MAX: Final = 1000
"""So many nodes are looked at in one turn; some ms."""

CONFLICTS: Final = 3
"""So many transactions may be refused, one after the other, before that is a fault: others register meanwhile. What
one path was refused for so often is left out."""

AVOIDED_S: Final = 60.0
"""What was left out is tried again after so long."""

DOUBT_S: Final = 10.0
"""A follower that knows of no leader stays registered for so long: elections are shorter."""

CHECKSUM_MAX: Final = 2**32 - 1
END: Final = ""
"""Nothing more is to be changed."""

ANOTHER_CLUSTER: Final = "another cluster is registered there: {} names it; remove that node if that cluster is gone"
NO_GUARD: Final = "{} does not hold what a node writes there: remove it"


class Place(NamedTuple):
    """Where a worker's broker is registered. `address`: `meta://host:port`."""

    root: str
    shard: int
    node_id: int
    address: str


_UNFIT: Final = re.compile("[/\ud800-\uf8ff\ufff0-\U0010ffff]")

Standing = Literal["leads", "follows", "unknown"]


class _Known(NamedTuple):
    """What this node knows of its shard. `vote_id`: under which it leads; 0: it does not."""

    standing: Standing = "unknown"
    vote_id: int = 0
    cluster_id: int = 0


class Registration:
    """Of one shard on one node. `fault`: why nothing is registered now, for people; None: all is there, or will be.

    `is_whole`: all that is to be there is.
    """

    def __init__(self, place: Place) -> None:
        self.place = place
        self.fault: str | None = None
        self.is_whole = False
        self._names = _Names(place)
        self._known = _Known()
        self._led = 0
        self._topics: dict[str, TopicFacts] | None = None
        self._plan: Iterator[Op | str | None] | None = None
        self._refusals = _Refusals()
        self._checksum = 0
        self._session = self._serial = 0
        self._seen: TreeRead | None = None
        self._asked: ReadTree | Transact | None = None
        self._at = self._verify_at = 0.0

    # -- what is known ---------------------------------------------------------------------------------------------

    def stands(self, now: float, standing: Standing, vote_id: int, cluster_id: int) -> None:
        """Note who leads the shard: this node, under that vote_id, another one, or nobody that is known."""
        known = _Known(standing, vote_id if standing == "leads" else 0, cluster_id)
        if known == self._known:
            return
        doubts = standing == "unknown" and self._known.standing == "follows"
        self._known = known
        self._led = known.vote_id or self._led
        self._look_anew(now + DOUBT_S if doubts else now)

    def topics_are(self, now: float, topics: dict[str, TopicFacts]) -> None:
        """Note which topics the shard has."""
        if topics != self._topics:
            self._topics, self._plan, self.is_whole = topics, None, False
            self._checksum = sum([crc32(f"{name} {its}".encode()) for name, its in topics.items()]) & CHECKSUM_MAX
            self._at = min(self._at, now)

    def session(self, now: float, session: int) -> None:
        """Note the session with ZooKeeper; 0: it can't be reached now."""
        self._session, self._asked = session, None
        self._refusals = _Refusals()
        self._look_anew(now)

    def _look_anew(self, at: float) -> None:
        self._seen, self._plan, self.is_whole, self._at = None, None, False, at

    def read(self, now: float, message: TreeRead) -> None:
        """Note what stands there."""
        if not isinstance(self._asked, ReadTree) or message.serial != self._asked.serial:
            return
        self._asked = None
        if message.fault is not None:
            self._fail(now, message.fault, RETRY_S)
        else:
            self._seen, self._plan, self._verify_at = message, None, now + VERIFY_S
            self.fault = self._refusals.fault

    def transacted(self, now: float, message: Transacted) -> None:
        """Note what became of a transaction."""
        asked = self._asked
        if not isinstance(asked, Transact) or message.serial != asked.serial:
            return
        self._asked = None
        if message.fault is not None:
            self._fail(now, message.fault, RETRY_S)
        elif message.refused is not None:
            self._refusals.note(message.refused, may_avoid=message.refused.path not in self._names.of_claim)
            self._look_anew(now + RETRY_S * (self._refusals.count > 1))
            self.fault = self._refusals.fault
        elif self._seen is not None:
            self._refusals.count = 0
            self.fault = self._refusals.fault
            _did(self._seen, asked)

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
        ops, folders = self._ops(now, self._seen)
        if ops:
            self._asked = Transact(self._next_serial(), ops, folders)
        elif self._plan is not None:
            self._at = now  # it was not all looked at in this turn
        elif self._seen is not None:  # nothing has failed
            self.fault = self._refusals.done()
            if self.fault is not None:
                self._verify_at = min(self._verify_at, now + AVOIDED_S)
            self.is_whole, self._at = self.fault is None, self._verify_at
        return self._asked

    def _next_serial(self) -> int:
        self._serial += 1
        return self._serial

    def _leaves(self) -> list[str]:
        """Give the names below topics that are read: also those of a lead of this process."""
        names = self._names
        return [names.master, names.slave] if self._led else [names.slave]

    def _ops(self, now: float, seen: TreeRead) -> tuple[list[Op], list[str]]:
        """Say what is to be done next, and which folders that needs.

        Nothing: all is there, or nothing may be done, then `fault` says why; or not all was looked at yet, where there
        is a plan still.
        """
        names, leads = self._names, self._known.standing == "leads"
        guard = seen.nodes.get(names.guard)
        vote_id, cluster_id = _read_guard(guard)
        if guard is not None and cluster_id != self._known.cluster_id:
            self._fail(now, (ANOTHER_CLUSTER if cluster_id else NO_GUARD).format(names.guard), SUPERSEDED_S)
            return [], []
        if leads and vote_id > self._known.vote_id:
            self._fail(now, "a later leader is registered there", SUPERSEDED_S)
            return [], []
        if leads and (guard is None or vote_id < self._known.vote_id):
            return self._claim(seen, guard), []
        if self._known.standing == "follows" and names.broker not in seen.nodes:
            self._fail(now, "the shard's leader is not registered yet", RETRY_S)
            return [], []
        if self._plan is None:
            self._plan = self._changes(seen, takes_away=leads or (guard is not None and vote_id == self._led))
        ops: list[Op] = []
        folders: list[str] = []
        for _ in range(LOOKS_MAX):
            one = next(self._plan, END)
            if one == END:
                self._plan = None
                break
            if isinstance(one, str):
                folders.append(one)
            elif one is not None and one.path not in self._refusals.avoided:
                ops.append(one)
                if len(ops) >= OPS_MAX:
                    break
        if ops and guard is not None and (leads or any(names.is_leaders(op.path) for op in ops)):
            ops.insert(0, Op("check", names.guard, version=guard.version))
        return ops, folders

    def _claim(self, seen: TreeRead, guard: Node | None) -> list[Op]:
        """Raise the guard, and replace what others left of the broker."""
        names = self._names
        data, address = f"{self._known.vote_id} {self._known.cluster_id:x}".encode(), self.place.address.encode()
        ops = [Op("set" if names.broker in seen.nodes else "create", names.broker, address)]
        ops.append(Op("create", names.guard, data) if guard is None else Op("set", names.guard, data, guard.version))
        return [*ops, *(op for path, data in self._of_broker().items() for op in _put(seen, path, data))]

    def _changes(self, seen: TreeRead, *, takes_away: bool) -> Iterator[Op | str | None]:
        """Go through what is to be changed; a text is a folder that is to be made, None: nothing is to be done there.

        `takes_away`: also of what a leader has registered.
        """
        names, of_broker = self._names, self._of_broker()
        for path, data in of_broker.items():
            yield from _put(seen, path, data)
        for name, its in (self._topics or {}).items():
            yield None
            for folder, leaf, data in self._of_topic(name, its):
                if name not in seen.names.get(folder, ()):
                    yield f"{folder}/{name}"
                yield from _put(seen, f"{folder}/{name}/{leaf}", data)
        for path, node in [*seen.nodes.items()]:
            yield None
            if path in of_broker or path in (names.broker, names.guard) or self._is_wanted(path):
                continue
            if not names.is_leaders(path) or (takes_away and (node.is_own or self._known.standing == "leads")):
                yield Op("delete", path)

    # -- what is to be there ---------------------------------------------------------------------------------------

    def _is_wanted(self, path: str) -> bool:
        """Whether a node of a topic is to be there."""
        folder_of, _, leaf = path.rpartition("/")
        folder, _, name = folder_of.rpartition("/")
        its = (self._topics or {}).get(name)
        return its is not None and any((folder, leaf) == one[:2] for one in self._of_topic(name, its))

    def _of_broker(self) -> dict[str, bytes]:
        address, broker = self.place.address.encode(), self._names.broker
        if self._known.standing == "follows":
            return {f"{broker}/slave{self.place.node_id}": address}
        if self._known.standing == "unknown":
            return {}
        return {f"{broker}/master": address, f"{broker}/master_config_checksum": b"%d" % self._checksum}

    def _of_topic(self, name: str, its: TopicFacts) -> Iterator[tuple[str, str, bytes]]:
        """Give what is to be there of a topic: folder, leaf and data."""
        leads, (all_of, pub, sub) = self._known.standing == "leads", self._names.folders
        leaf = self._names.master if leads else self._names.slave
        if self._known.standing == "unknown" or not fits_path(name):
            return
        data = b'{"numParts":%d,"broker":"%b"}' % (its.partitions, leaf.encode())
        if its.accept_read:
            yield sub, leaf, data
        if leads and its.accept_append:
            yield pub, leaf, data
        if leads and (its.accept_append or its.accept_read):
            yield all_of, leaf, b"%d" % its.partitions


class _Refusals:
    """Of transactions: `count` were refused one after the other; `avoided`: why these paths are left out, by path.

    `fault`: what is to be said of them, if anything.
    """

    def __init__(self) -> None:
        self.avoided: dict[str, str] = {}
        self.count = 0
        self._last = ""
        self._of_last = 0

    @property
    def fault(self) -> str | None:
        if not self.avoided and self.count < CONFLICTS:
            return None
        path, why = next(iter(self.avoided.items()), (self._last, "something else writes there again and again"))
        more = f", and {len(self.avoided) - 1} more" if len(self.avoided) > 1 else ""
        return f"{path} can't be registered: {why}{more}"

    def note(self, refused: Refused, *, may_avoid: bool) -> None:
        """Count one, and avoid its path from now on when that was refused too often."""
        self.count += 1
        self._of_last = self._of_last + 1 if refused.path == self._last else 1
        self._last = refused.path
        if may_avoid and self._of_last >= CONFLICTS:
            self.avoided[refused.path] = refused.why
            self.count = self._of_last = 0

    def done(self) -> str | None:
        """Say what stays to be said when all the rest is done. What was avoided is tried again after that."""
        self.count = 0
        fault, self.avoided = self.fault, {}
        return fault


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
        self.of_claim = {self.broker, self.guard}  # without these nothing may be registered

    def is_leaders(self, path: str) -> bool:
        """Whether only a leader registers under that path."""
        folder, _, name = path.rpartition("/")
        if folder == self.broker:
            return name in ("master", "master_config_checksum")
        return name == self.master and folder.rpartition("/")[0] in self.folders


def fits_path(name: str) -> bool:
    """Whether a topic's name may be one in a path of ZooKeeper's, which looks at UTF-16."""
    return name not in (".", "..") and not _UNFIT.search(name)


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


def _did(seen: TreeRead, asked: Transact) -> None:
    """Note that this was done."""
    for one in asked.folders:
        folder, _, name = one.rpartition("/")
        seen.names.setdefault(folder, set()).add(name)
    for op in asked.ops:
        if op.kind == "delete":
            seen.nodes.pop(op.path, None)
        elif op.kind == "set":
            before = seen.nodes[op.path]
            seen.nodes[op.path] = Node(op.data, before.version + 1, before.is_own)
        elif op.kind == "create":
            seen.nodes[op.path] = Node(op.data, 0, op.is_ephemeral)


def _read_guard(guard: Node | None) -> tuple[int, int]:
    """Read the vote_id and the cluster_id; 0 and 0 where nothing stands there that can be read."""
    try:
        vote_id, cluster_id = (b"" if guard is None else guard.data).split()
        return int(vote_id), int(cluster_id, 16)
    except ValueError:
        return 0, 0
