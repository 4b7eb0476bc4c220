"""Registrar: keeps a shard registered in ZooKeeper. Decides nothing: `Registration` does.

Which topics there are it asks the shard, every few seconds; where MetaQ's groups are, ZooKeeper. That ZooKeeper is away
is a warning, once, and stops nothing.
"""

import logging
from typing import Final

from actors.messages.mailbox import Mailbox
from actors.messages.mailboxes import ToQueueOwner, ToRegistrar, ToZooKeeperLane
from actors.messages.peers import LeaderChanged
from actors.messages.registering import (
    GroupsRead,
    ReadGroups,
    SessionChanged,
    ShardTopics,
    TellTopics,
    Transacted,
    TreeRead,
)
from actors.registrar.registration import Place, Registration, Standing
from actors.runtime.contract import Runtime, Timer
from actors.runtime.loop_actor import LoopActor
from net.node_facts import NodeFacts
from quorate.stream_replies import MetaqGroupRow

log = logging.getLogger("quorate.registrar")

TOPICS_S: Final = 1.0
TOPICS_A_S: Final = 500
"""So often it is asked which topics there are; and where there are many, more seldom: so many a second."""

GROUPS_S: Final = 10.0
GROUPS_SHARE: Final = 0.03
"""So often it is looked where MetaQ's groups are; and where there are many, for such a part of the time."""

GROUPS_MAX: Final = 500
PLACES_MAX: Final = 20_000
"""Of a topic so many groups are shown, the first by name, with so many places together."""

REGISTERED: Final = "registered"
REGISTERING: Final = "registering"


class Groups:
    """When it is looked where MetaQ's groups are, and what was found. `topics`: in these."""

    def __init__(self) -> None:
        self.topics: list[str] = []
        self._found: dict[str, list[MetaqGroupRow]] = {}
        self._after = ""
        self._asked_at: float | None = None
        self._next_at = 0.0

    def next(self, now: float) -> str | None:
        """Say behind which group it is looked now; None: not now."""
        if not self.topics or self._asked_at is not None or now < self._next_at:
            return None
        self._asked_at = now
        return self._after

    def read(self, now: float, message: GroupsRead) -> dict[str, list[MetaqGroupRow]] | None:
        """Take what was found; returns all, where nothing is left to be looked at."""
        for topic, rows in message.groups.items():
            its = self._found.setdefault(topic, [])
            room = PLACES_MAX - sum([len(one.partitions) for one in its])
            for row in rows:
                room -= len(row.partitions)
                if room >= 0 and len(its) < GROUPS_MAX:
                    its.append(row)
        rest_s = 0.0 if self._asked_at is None else (now - self._asked_at) / GROUPS_SHARE
        has_failed = message.next == self._after  # it is to begin where it began
        self._after, self._asked_at = message.next or "", None
        if message.next is not None:
            self._next_at = now + (max(rest_s, GROUPS_S) if has_failed else rest_s)
            return None
        self._next_at = now + max(rest_s, GROUPS_S)
        found, self._found = self._found, {}
        return found


class Registrar(LoopActor[ToRegistrar]):
    """Of one shard's worker. `facts`: what is known of the node, and where it is noted how this stands."""

    def __init__(self, runtime: Runtime, place: Place, facts: NodeFacts) -> None:
        super().__init__(runtime)
        self._registration = Registration(place)
        self._facts = facts
        self._leader = LeaderChanged(0, False)
        self._next_topics_at = 0.0
        self._groups = Groups()
        self._timer: Timer | None = None
        self._away = ""
        self._has_warned = False
        self._owner: Mailbox[ToQueueOwner]
        self._lane: Mailbox[ToZooKeeperLane]
        self.handlers = {
            LeaderChanged: self._leader_changed,
            ShardTopics: self._topics_told,
            TreeRead: lambda m: self._registration.read(self.runtime.monotonic(), m),
            Transacted: lambda m: self._registration.transacted(self.runtime.monotonic(), m),
            SessionChanged: self._session_changed,
            GroupsRead: self._groups_read,
        }

    def attach(self, owner: Mailbox[ToQueueOwner], lane: Mailbox[ToZooKeeperLane]) -> None:
        """Whom it tells; called by the assembly before any message."""
        self._owner, self._lane = owner, lane

    def on_receive(self, message: object) -> None:
        """Dispatch, then carry out what is to be done now."""
        self.handlers[type(message)](message)
        self._carry_out()

    # -- what it hears ---------------------------------------------------------------------------------------------

    def _leader_changed(self, message: LeaderChanged) -> None:
        self._leader = message
        self._next_topics_at = 0.0

    def _session_changed(self, message: SessionChanged) -> None:
        self._registration.session(self.runtime.monotonic(), message.session)
        self._away = "" if message.session else f"ZooKeeper can't be reached: {message.fault}"

    def _note(self, fault: str) -> None:
        """Log why the broker is not registered, once for each time, and that it is again."""
        if bool(fault) != self._has_warned:
            self._has_warned = bool(fault)
            if fault:
                log.warning("MetaQ's clients may not find this broker: %s (nothing else waits for that)", fault)
            else:
                log.info("MetaQ's clients find this broker in ZooKeeper")

    def _topics_told(self, message: ShardTopics) -> None:
        now = self.runtime.monotonic()
        self._next_topics_at = max(self._next_topics_at, now + len(message.topics) / TOPICS_A_S)
        self._registration.topics_are(now, message.topics)
        self._groups.topics = [*message.topics]

    def _groups_read(self, message: GroupsRead) -> None:
        whole = self._groups.read(self.runtime.monotonic(), message)
        if whole is not None:
            self._owner.tell(GroupsRead(message.serial, whole))

    # -- what it does ----------------------------------------------------------------------------------------------

    def _carry_out(self) -> None:
        """Say how the node stands, ask what is to be asked, and come again when something is due."""
        now, registration = self.runtime.monotonic(), self._registration
        leader, cluster_id = self._leader, self._facts.cluster_id
        standing: Standing = "unknown"
        if cluster_id and leader.leader:
            standing = "leads" if leader.is_self else "follows"
        registration.stands(now, standing, leader.vote_id, cluster_id)
        if standing != "unknown" and now >= self._next_topics_at:
            self._next_topics_at = now + TOPICS_S
            self._owner.tell(TellTopics(self.mailbox))
        asked = registration.next(now)
        if asked is not None:
            self._lane.tell(asked)
        if registration.is_whole and standing == "leads" and (groups := self._groups.next(now)) is not None:
            root, shard = registration.place.root, registration.place.shard
            self._lane.tell(ReadGroups(0, f"{root}/consumers", shard, self._groups.topics, groups))
        fault = self._away or registration.fault or ""
        if fault or registration.is_whole:
            self._note(fault)
        self._facts.metaq.zookeeper = fault or (REGISTERED if registration.is_whole else REGISTERING)
        self._set_timer(now)

    def _set_timer(self, now: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        at = min(self._registration.next_at, max(self._next_topics_at, now + 0.05))
        self._timer = self.runtime.call_later(max(at - now, 0.0), self._rang)

    def _rang(self) -> None:
        self._timer = None
        if not self.has_ended:
            self._carry_out()
