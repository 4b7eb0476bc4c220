"""ZooKeeperLane: talks with ZooKeeper, by kazoo, which has threads of its own. Needs the extra `metaq`.

kazoo's words of four letters are not used: servers have them switched off.
"""

import contextlib
import logging
import re
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any, Final

import pykka
from kazoo.client import KazooClient, KazooState
from kazoo.exceptions import NodeExistsError, NoNodeError, RolledBackError, RuntimeInconsistency
from kazoo.retry import KazooRetry

from actors.messages.mailbox import Mailbox
from actors.messages.mailboxes import ToRegistrar
from actors.messages.registering import (
    GroupsRead,
    Node,
    Op,
    ReadGroups,
    ReadTree,
    Refused,
    SessionChanged,
    Transact,
    Transacted,
    TreeRead,
)
from actors.runtime.blocking import BlockingActor
from actors.runtime.contract import Runtime
from quorate.protocol import GROUP_MAX
from quorate.stream_replies import MetaqGroupRow, MetaqPlace

SESSION_S: Final = 6.0
ANSWER_S: Final = 2.0
"""ZooKeeper answers within that, or is taken for away. What was asked may still be done, in its order."""

GROUPS_MAX: Final = 50
PLACES_MAX: Final = 500
MEMBERS_MAX: Final = 1000
"""So many groups, and places of theirs, are looked at in one go; and so many consumers of one."""

AT_ONCE: Final = 64
DATA_MAX: Final = 64 << 10
"""So many nodes are asked for at once, which may have 1 MB each; and so many bytes of each are looked at."""

OF_PLACES: Final = ("offsets", "owners")
_NUMBER: Final = re.compile(r"[0-9]{1,15}", re.ASCII)

log = logging.getLogger("quorate.registrar")
QUIET: Final = logging.getLogger("quorate.registrar.kazoo")


class ZooKeeperLane(BlockingActor):
    """Of one worker. `hosts`: `host:port`, or several, divided by commas."""

    def __init__(self, runtime: Runtime, hosts: str, registrar: Mailbox[ToRegistrar]) -> None:
        super().__init__(runtime)
        self._hosts = hosts
        self._registrar = registrar
        self._client: Any = None
        self._session = 0
        self._handlers: dict[type, Callable[[Any], TreeRead | Transacted | GroupsRead]] = {
            ReadTree: self._read,
            Transact: self._transact,
            ReadGroups: self._read_groups,
        }

    def on_start(self) -> None:
        """Begin to connect."""
        QUIET.setLevel(logging.CRITICAL)
        retry = KazooRetry(max_tries=-1, delay=0.1, backoff=1.5, max_jitter=0.2, max_delay=0.5)
        self._client = KazooClient(self._hosts, timeout=SESSION_S, connection_retry=retry, logger=QUIET)
        self._client.add_listener(self._changed)
        self._registrar.tell(SessionChanged(0, f"there is no answer from {self._hosts} yet"))
        self._client.start_async()

    def on_stop(self) -> None:
        """End the session: what goes with it goes."""
        self._client.stop()
        self._client.close()

    def _changed(self, state: str) -> None:
        """Pass on what kazoo says of the session, on its thread for the connection, where nothing may wait."""
        is_there = state == KazooState.CONNECTED
        self._session = self._client.client_id[0] if is_there else 0
        fault = "" if is_there else f"the session with {self._hosts} is {state.lower()}"
        if not is_there:
            self._client.last_zxid = 0  # else a server that has lost its data would never be taken again
        with contextlib.suppress(pykka.ActorDeadError):  # the worker is ending
            self._registrar.tell(SessionChanged(self._session, fault))

    def on_receive(self, message: Any) -> None:
        """Do it. Whatever kazoo raises says that it was not done, or that nobody knows: it ends no worker."""
        try:
            answer = self._handlers[type(message)](message)
        except Exception as error:
            log.debug("ZooKeeper: %r", error)
            fault = str(error) or type(error).__name__  # many of kazoo's have no text
            if isinstance(message, ReadGroups):
                answer = GroupsRead(message.serial, {}, message.after)  # they are looked for again
            elif isinstance(message, ReadTree):
                answer = TreeRead(message.serial, {}, {}, fault)
            else:
                answer = Transacted(message.serial, fault=fault)
        self._registrar.tell(answer)

    def _read(self, message: ReadTree) -> TreeRead:
        for folder in (*message.folders, message.nodes[0].rpartition("/")[0]):
            self._client.ensure_path_async(folder).get(timeout=ANSWER_S)
        names = {folder: set(self._names(folder)) for folder in message.folders}
        wanted = [*message.nodes]
        for folder, its in names.items():
            wanted += [f"{folder}/{name}/{leaf}" for name in its for leaf in message.leaves]
        return TreeRead(message.serial, self._nodes(wanted), names)

    def _nodes(self, paths: Iterable[str]) -> dict[str, Node]:
        """Read those of these nodes that are there."""
        found: dict[str, Node] = {}
        rest = iter(paths)
        while asked := [(path, self._client.get_async(path)) for path in islice(rest, AT_ONCE)]:
            for path, answer in asked:
                try:
                    data, stat = answer.get(timeout=ANSWER_S)
                except NoNodeError:
                    continue
                found[path] = Node((data or b"")[:DATA_MAX], stat.version, stat.ephemeralOwner == self._session)
        return found

    def _names(self, path: str) -> list[str]:
        """List what is in a folder; nothing, if there is none."""
        try:
            return sorted(self._client.get_children_async(path).get(timeout=ANSWER_S))
        except NoNodeError:
            return []

    def _transact(self, message: Transact) -> Transacted:
        made = [self._client.create_async(folder, b"") for folder in message.folders]
        for one in made:
            with contextlib.suppress(NodeExistsError):
                one.get(timeout=ANSWER_S)
        transaction = self._client.transaction()
        for op in message.ops:
            _add(transaction, op)
        results = transaction.commit_async().get(timeout=ANSWER_S)
        for op, one in zip(message.ops, results, strict=True):
            if isinstance(one, Exception) and not isinstance(one, RolledBackError | RuntimeInconsistency):
                return Transacted(message.serial, Refused(op.path, type(one).__name__.removesuffix("Error")))
        return Transacted(message.serial)

    # -- MetaQ's groups --------------------------------------------------------------------------------------------

    def _read_groups(self, message: ReadGroups) -> GroupsRead:
        """Read some of the groups: others are to be registered meanwhile."""
        found: dict[str, list[MetaqGroupRow]] = {}
        places, wanted = 0, set(message.topics)
        groups = [name for name in self._names(message.consumers) if message.after < name and len(name) <= GROUP_MAX]
        for count, group in enumerate(groups[:GROUPS_MAX], 1):
            folder = f"{message.consumers}/{group}"
            topics = wanted.intersection(self._names(f"{folder}/offsets"))
            members = self._members(f"{folder}/ids") if topics else []
            for topic in topics:
                its = _of_broker(self._names(f"{folder}/offsets/{topic}"), message.broker)[:PLACES_MAX]
                places += len(its)
                nodes = self._nodes(f"{folder}/{what}/{topic}/{name}" for name in its for what in ("offsets", "owners"))
                rows = [
                    _place(name, *[nodes.get(f"{folder}/{what}/{topic}/{name}") for what in OF_PLACES]) for name in its
                ]
                found.setdefault(topic, []).append(MetaqGroupRow(group, sum(topic in one for one in members), rows))
            if places >= PLACES_MAX and count < len(groups):
                return GroupsRead(message.serial, found, group)
        following = groups[GROUPS_MAX - 1] if len(groups) > GROUPS_MAX else None
        return GroupsRead(message.serial, found, following)

    def _members(self, path: str) -> list[set[str]]:
        """Give the topics of each consumer that is there."""
        nodes = self._nodes(f"{path}/{name}" for name in self._names(path)[:MEMBERS_MAX])
        return [set(node.data.decode("utf-8", "replace").split(",")) for node in nodes.values()]


def _add(transaction: Any, op: Op) -> None:
    if op.kind == "check":
        transaction.check(op.path, op.version)
    elif op.kind == "create":
        transaction.create(op.path, op.data, ephemeral=op.is_ephemeral)
    elif op.kind == "set":
        transaction.set_data(op.path, op.data, op.version)
    else:
        transaction.delete(op.path, op.version)


def _of_broker(names: list[str], broker: int) -> list[str]:
    """Give those of the names that are partitions of this broker."""
    begin = f"{broker}-"
    return [name for name in names if name.startswith(begin) and _NUMBER.fullmatch(name[len(begin) :])]


def _place(name: str, offset: Node | None, owner: Node | None) -> MetaqPlace:
    """Read where a group is in a partition: `id-position`; older consumers say the position alone. 0: it is unknown."""
    said = "" if offset is None else offset.data.decode("utf-8", "replace")
    msg_id, _, position = said.rpartition("-")
    reader = None if owner is None else owner.data.decode("utf-8", "replace")[:255]
    return MetaqPlace(_number(name.rpartition("-")[2]), _number(position), _number(msg_id), 0, reader)


def _number(text: str) -> int:
    """Read a number of at most 15 digits; 0, where there is none: whoever writes to ZooKeeper may write anything."""
    return int(text) if _NUMBER.fullmatch(text) else 0
