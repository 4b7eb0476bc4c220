"""What MetaQ's sessions of a worker share, what one client has, and what answers its commands."""

from typing import Final, cast

from net.node_facts import ListenerFacts, NodeFacts
from net.protocols.metaq_framing import result
from net.protocols.metaq_stats import MetaqStats
from net.protocols.metaq_transactions import Holder, Staging
from net.protocols.session import Ask, Awaited, RequestLimits
from quorate.protocol import ErrorWord, Reply, Request, name_fault
from quorate.shards import shard_of_queue

OK: Final = 200
FORBIDDEN: Final = 403
FAILED: Final = 500
UNAVAILABLE: Final = 503

CHECK: Final = "check"
"""The command of an append that only asks whether it could be done."""

NAMES_MAX: Final = 1000
"""So many topics' shards are remembered."""

LATER: Final = (ErrorWord.OVERLOADED, ErrorWord.NO_LEADER)
"""The errors of what may be asked again: 503."""

Made = bytes | Request | Ask


class MetaqWorker:
    """What all sessions of a worker share: what is counted, the transactions that are open, and how many `lists` of
    topics are being made."""

    def __init__(self, now: float) -> None:
        self.stats = MetaqStats(now)
        self.staging = Staging()
        self.names: dict[str, bool] = {}
        self.lists = 0


def worker_of(facts: NodeFacts, now: float) -> MetaqWorker:
    """Give what a worker's sessions share; the first makes it."""
    if facts.metaq.worker is None:
        facts.metaq.worker = MetaqWorker(now)
    return cast("MetaqWorker", facts.metaq.worker)


class MetaqClient:
    """One client's. `facts`: what is known of its node; `listener`: of its port; `open`: its local transactions;
    `lists`: so many lists of topics are being made for it."""

    def __init__(self, limits: RequestLimits, facts: NodeFacts, listener: ListenerFacts) -> None:
        self.limits = limits
        self.facts = facts
        self.listener = listener
        self.worker = worker_of(facts, listener.monotonic())
        self.open = Holder()
        self.lists = 0
        self._is_counted = True
        self.worker.stats.connections += 1

    def leave(self) -> None:
        """Roll back what is open."""
        self.worker.staging.end_all(self.open)
        if self._is_counted:
            self._is_counted = False
            self.worker.stats.connections -= 1
            self.worker.lists -= self.lists

    def has_topic(self, name: str) -> bool:
        """Whether a topic of that name may be in the port's shard."""
        known = self.worker.names
        found = known.get(name)
        if found is None:
            facts = self.facts
            is_name = bool(name) and name_fault(name) is None
            found = is_name and (facts.shards == 1 or shard_of_queue(name, facts.shards) == self.listener.shard)
            if len(known) >= NAMES_MAX:
                known.clear()
            known[name] = found
        return found

    def broker(self, topic: str, partition: int) -> str:
        """Begin the text of a put that failed."""
        address = f"meta://{self.listener.host}:{self.listener.port}"
        return f"Put message to [broker '{address}'] [partition '{topic}-{partition}'] failed.Detail:"


class Step(Awaited):
    """The note to a command's request, which is answered under its `opaque`."""

    def __init__(self, client: MetaqClient, opaque: int) -> None:
        self.client = client
        self.opaque = opaque

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.opaque})"

    def refused(self, reply: Reply) -> bytes:
        return result(code_of(reply), f"{reply.error}: {reply.reason}", self.opaque)


def code_of(reply: Reply) -> int:
    return UNAVAILABLE if reply.error in LATER else FAILED
