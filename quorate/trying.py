"""One request of a client, tried until it is answered, its time is over, or another try could do it twice.

A machine: the clock and what came of each try in, what is to be sent, how long to pause, and the end out. The sync and
the async client host it, each with its own way to a node.
"""

from typing import Any, Final

from quorate.actions import CHANGE_NOTHING, REPEATABLE, WAITS
from quorate.errors import CLOSED, ConnectionFailedError, QuorateError, RefusedError, UnknownOutcomeError, refused
from quorate.lost import Lost, NotLetInError
from quorate.nodes import Address, Nodes
from quorate.payload import from_wire
from quorate.protocol import Action, ErrorWord
from quorate.shard_map import ShardMap

PAUSE_MIN_S: Final = 0.01
PAUSE_MAX_S: Final = 0.2
"""Between two tries of a request."""

CONNECT_S: Final = 2.0
"""Connecting to one of several nodes, TLS and token included, takes no more of a request's time, nor half of it."""

WAIT_SLICE_S: Final = 25.0
"""A long wait is asked for in slices: a node that is cut off is noticed, and what stands between keeps no account."""

WAIT_MIN_S: Final = 0.01

DIRECT_S: Final = 0.5
"""For so long a shard's own port is tried, before the request goes by any node."""

LEARN_S: Final = 1.0
"""A request waits no longer for the map of the shards, which is only advice."""

ANSWER_S: Final = 0.5
"""So much before a request's time is over its last try is to be answered: that nobody leads, rather than nothing."""

PATIENCE_MAX_S: Final = 4.0
"""A node is not asked to wait for a leader for longer; by itself it waits so long (`leader_timeout_s`)."""

UNREADABLE: Final = (ErrorWord.TOO_LARGE, ErrorWord.TOO_SLOW, ErrorWord.BAD_JSON)
"""Refusals behind which a connection closes."""

ALWAYS: Final = (ErrorWord.FIELD, ErrorWord.NOT_SUPPORTED, *UNREADABLE)
"""Refusals of what a request says: whoever was asked before has refused it, too."""

NOT_DONE: Final = (ErrorWord.REDIRECT, ErrorWord.STOPPING, ErrorWord.NO_LEADER)
"""Refusals that say that it may be done later, or elsewhere."""


class Trying:
    """Times are monotonic seconds. `shard_map` None: any node is asked.

    Without `retry_connect` it is over when each node was tried and none could be reached. `was_repeated`: an earlier
    try may have been done. `direct`: where the map says that it is done.
    """

    was_repeated = _had_no_leader = False
    _refusal: dict[str, Any] | None = None
    """The last of those that say that it may be done later."""

    _redirects = _not_let_in = _not_reached = 0
    _pause_s = PAUSE_MIN_S

    def __init__(
        self,
        action: int,
        body: dict[str, Any],
        nodes: Nodes,
        timeout_s: float,
        shard_map: ShardMap | None = None,
        *,
        now: float,
        retry_connect: bool = True,
    ) -> None:
        self._action = action
        self._body = body
        self._nodes = nodes
        self._timeout_s = timeout_s
        self._map = shard_map
        self._retry_connect = retry_connect
        self.direct = None if shard_map is None else shard_map.address_of(action, body)
        self._begun = now
        self._wait_s: float = body.get("wait", 0.0)

    @property
    def is_keyed(self) -> bool:
        """Whether it produces one message, by its key."""
        return self._action == Action.PRODUCE and "key" in self._body and "messages" not in self._body

    @property
    def _is_repeatable(self) -> bool:
        if self._action == Action.TRANSACTION:
            return any(_is_done_once(one) for one in self._body["operations"])
        is_numbered = self._action == Action.APPEND and "producer" in self._body
        return self._action in REPEATABLE or self.is_keyed or is_numbered

    @property
    def _until(self) -> float:
        return self._begun + self._wait_s + self._timeout_s

    @property
    def _is_unknown(self) -> bool:
        """Whether an earlier try may have done something."""
        return self.was_repeated and self._action not in CHANGE_NOTHING

    def next(self, now: float) -> tuple[dict[str, Any], float, float]:
        """Say what is sent now, how long it may take to be answered, and how long it asks to wait beside that (s)."""
        if not self._wait_s:
            left_s = max(self._begun + self._timeout_s - now, 0.001)
            return self._patient(self._body, left_s), left_s, 0.0
        slice_s = min(max(self._begun + self._wait_s - now, 0.001), WAIT_SLICE_S)
        left_s = max(min(self._until - now - slice_s, self._timeout_s), 0.001)
        return self._patient({**self._body, "wait": slice_s}, left_s), left_s, slice_s

    def _patient(self, body: dict[str, Any], left_s: float) -> dict[str, Any]:
        """Let the node that is asked say in time that nobody leads, where it would wait for too long by itself."""
        if not (self._had_no_leader or self._timeout_s <= PATIENCE_MAX_S) or "patience" in body:
            return body
        patience_s = max(left_s - self._answer_s, 0.001)
        if patience_s > PATIENCE_MAX_S:
            return body
        return {**body, "patience": round(patience_s, 3)}

    @property
    def _answer_s(self) -> float:
        """How much of its time is left for the last try's answer."""
        return min(ANSWER_S, self._timeout_s / 6)

    def connect_s(self, left_s: float) -> float:
        """How long connecting may take, of a try that may take so long."""
        limit_s = left_s if len(self._nodes) == 1 else min(left_s / 2, CONNECT_S)
        return limit_s if self.direct is None else min(limit_s, DIRECT_S)

    def not_let_in(self, error: NotLetInError) -> float:
        """Note that a node would have none of this client; returns how long to pause. Raises what its user is told."""
        self._not_let_in += 1
        if self._not_let_in >= len(self._nodes) and not self._lost_way():
            raise error.why from error
        return 0.0

    def lost(self, now: float, lost: Lost) -> float:
        """Note that the connection broke; returns how long to pause. Raises `UnknownOutcomeError`,
        `ConnectionFailedError`."""
        if self._lost_way() and not lost.was_sent:
            return 0.0
        if lost.was_sent and not self._is_repeatable:
            raise UnknownOutcomeError(str(lost)) from lost
        self._not_reached = 0 if lost.was_sent else self._not_reached + 1
        has_tried_all = not self._retry_connect and self._not_reached >= len(self._nodes)
        self.was_repeated = self.was_repeated or lost.was_sent
        if has_tried_all or now + self._pause_s > self._until:
            if self._is_unknown:
                raise UnknownOutcomeError(str(lost)) from lost
            if self._refusal is not None:  # it says more than that the last try had no time
                raise refused(self._refusal) from lost
            raise ConnectionFailedError(str(lost)) from lost
        return self._paused()

    def replied(self, now: float, reply: dict[str, Any]) -> float | None:
        """None: that is the answer. Else how long to pause before the next try."""
        error = reply.get("error")
        if error is None and not self._wait_s:
            return None  # nearly always
        if self._is_nothing(reply) and now < self._begun + self._wait_s - WAIT_MIN_S:
            return 0.0  # a slice of the wait is over
        if not self._may_try_again(reply):
            return None
        if error in NOT_DONE:
            self._refusal = reply
        if now + self._pause_s + self._answer_s > self._until:
            return None  # another could not be answered in time, and nobody would know what became of it
        self._lost_way()
        self._had_no_leader = error == ErrorWord.NO_LEADER
        if error == ErrorWord.REDIRECT and self._redirects < 1:
            self._redirects += 1
            return 0.0
        return self._paused()

    def closed(self) -> QuorateError:
        """Make what is raised where the client was closed between two tries."""
        return UnknownOutcomeError(CLOSED) if self._is_unknown else ConnectionFailedError(CLOSED)

    def ended(self, reply: dict[str, Any]) -> dict[str, Any] | None:
        """Return the reply, as its user gets it. None: what holds its key may be an earlier try's: see `of_holder`.

        A client that may not look is not told which message that is.

        Raises `UnknownOutcomeError`, `RefusedError`.
        """
        if reply.get("code") == 0:
            if reply.get("ignored") or reply.get("exists") is False:
                raise refused(as_refusal(reply))
            return {**reply, "was_repeated": True} if self.was_repeated else reply
        error = reply.get("error")
        if error == ErrorWord.UNKNOWN_OUTCOME:
            said = f"{error}: {reply.get('reason', '')}"
            if self._action in CHANGE_NOTHING:
                raise ConnectionFailedError(said)
            raise UnknownOutcomeError(said, reply)
        is_held = error == ErrorWord.DUPLICATE_KEY and not reply.get("msg_ids")
        if self.was_repeated and self.is_keyed and is_held:
            if "msg_id" not in reply:
                raise UnknownOutcomeError(f"a try may have been done: {reply.get('reason', '')}", reply)
            return None
        if self.was_repeated and error == ErrorWord.NO_SUCH_READER and self._body.get("command") == "forget":
            return {"code": 0, "was_repeated": True}  # as that one
        is_certain = UNREADABLE if self._action == Action.TRANSACTION else (*ALWAYS, ErrorWord.DUPLICATE_KEY)
        if self._is_unknown and error not in is_certain:
            raise UnknownOutcomeError(
                f"a try may have been done, and the last: {error}: {reply.get('reason', '')}", reply
            )
        raise refused(reply)

    @property
    def holder(self) -> dict[str, Any]:
        """What show is asked about who holds the key."""
        if self._body.get("scope") is not None:
            return {"key": self._body["key"], "scope": self._body["scope"]}
        return {"queue": self._body["queue"], "key": self._body["key"]}

    def of_holder(self, reply: dict[str, Any], shown: dict[str, Any] | QuorateError) -> dict[str, Any]:
        """Return the reply, where the message that holds the key is the one that this request produced.

        `shown`: what show answers about who has it now, or raises. One that is gone was ours: its key was live when the
        request was repeated, and somebody has confirmed it since. Raises what the reply says where it is another's, and
        `UnknownOutcomeError` where this client may not look, and so can't tell.
        """
        if isinstance(shown, RefusedError) and shown.error != ErrorWord.NO_SUCH_MESSAGE:
            why = f"a try may have been done, and what holds the key can't be seen: {shown.reason}"
            raise UnknownOutcomeError(why) from shown
        if isinstance(shown, RefusedError) or (isinstance(shown, dict) and self._is_ours(reply, shown["message"])):
            return {**reply, "code": 0}  # the first try had been done before its answer was lost
        raise refused(reply)

    def _is_ours(self, reply: dict[str, Any], held: dict[str, Any]) -> bool:
        if held["msg_id"] != reply["msg_id"]:
            return True
        if self._body.get("scope") is not None:  # the key may be of another queue's message
            came_from = (held.get("dead") or held)["queue"]
            if came_from != self._body["queue"]:
                return False
        return bool(from_wire(held) == from_wire(self._body))

    def _paused(self) -> float:
        pause_s, self._pause_s = self._pause_s, min(self._pause_s * 2, PAUSE_MAX_S)
        return pause_s

    def _is_nothing(self, reply: dict[str, Any]) -> bool:
        """Whether what waits was told that there is nothing."""
        if self._action == Action.SHOW:
            return bool(self._wait_s) and reply.get("error") == ErrorWord.NO_SUCH_MESSAGE
        if self._action == Action.READ:
            return False  # it says where to go on, and "latest" would be another place then
        if self._action == Action.GROUP:
            return bool(self._wait_s) and "error" not in reply and "owns" not in reply
        is_empty = "msg_id" not in reply and not reply.get("messages") and reply.get("count") is None
        return self._action in WAITS and reply.get("code") == 0 and is_empty

    def _lost_way(self) -> bool:
        """Ask any node, which may know better, if it was the map that said where to ask: it was wrong."""
        if self.direct is None or self._map is None:
            return False
        self.direct = None
        self._map.forget()
        return True

    def _may_try_again(self, reply: dict[str, Any]) -> bool:
        """Whether another try may get further: the request was not done, or may be done twice."""
        error = reply.get("error")
        if self._action == Action.NODE_READY:
            return False  # that there is no leader is what was asked
        if error == ErrorWord.UNKNOWN_OUTCOME and self._is_repeatable:
            self.was_repeated = True
            return True
        return error in NOT_DONE


def _is_done_once(operation: dict[str, Any]) -> bool:
    """Whether an operation can't be done twice, nor the transaction that it is a part of."""
    if operation["action"] == Action.APPEND:
        return "producer" in operation
    return operation["action"] == Action.CONFIRM and "delivery" in operation


def keeps_connection(nodes: Nodes, address: Address, reply: dict[str, Any]) -> bool:
    """Whether the connection may be used on; otherwise the next is to another node, where the reply says so."""
    error = reply.get("error")
    if error is None:
        return True
    if error == ErrorWord.REDIRECT:
        nodes.ask_elsewhere(address, (str(reply["leader_host"]), int(reply["leader_port"])))
        return False
    if error in (ErrorWord.STOPPING, ErrorWord.NO_LEADER):
        nodes.ask_elsewhere(address)  # that one may be cut off, or removed
        return False
    return error not in UNREADABLE


def as_refusal(reply: dict[str, Any]) -> dict[str, Any]:
    """Make one of a reply that says code 0, for the original's clients, to what our user wants to know of.

    A queue that is not there, to be looked at; or fields that the node does not know, and has done without.
    """
    if reply.get("ignored"):
        named = ", ".join(map(str, reply["ignored"]))
        why = f"the node does not know {named}, and did the rest of the request: it is of an older version"
        return {**reply, "code": -1, "error": ErrorWord.FIELD, "reason": why}
    reason = f"there is no queue {reply.get('queue')!r}"
    return {**reply, "code": -1, "error": ErrorWord.NO_SUCH_QUEUE, "reason": reason}


def token_refused(reply: dict[str, Any], address: Address) -> Exception | None:
    """Say what the reply to authenticate means where it is no success: `Lost`, to be tried elsewhere, or a refusal."""
    if reply.get("code") == 0:
        return None
    error = str(reply.get("error", ""))
    if error in (ErrorWord.STOPPING, ErrorWord.OVERLOADED):
        return Lost(f"{address[0]}:{address[1]}: {error}: {reply.get('reason', '')}", was_sent=False)
    return refused(reply)
