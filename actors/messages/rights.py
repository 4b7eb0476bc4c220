"""Who asks, and what they may do: a part of every call.

A right over queues holds for patterns of names, with shell wildcards (`*`, `?`, `[..]`) as in a list; a right over the
node holds or does not. To operate a node includes to read its log.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from fnmatch import translate
from typing import Final, NamedTuple

from quorate.actions import (
    CLUSTER_LOOKS,
    NAME_NO_QUEUE,
    NAME_QUEUES,
    OF_COMMAND,
    OF_NODE,
    OF_QUEUES,
    OF_TOPICS,
    TABLE,
    Right,
)
from quorate.authentication import NotAllowedReply
from quorate.protocol import Action, Code, ErrorWord, Request, TransactionRequest, goes_to

NOTHING: Final = r"(?!)"
CACHED_MAX: Final = 2000
"""Answers that are remembered for one principal and one right."""

EVERY_QUEUE: Final = "*"
OVER_NODE: Final = frozenset(facts.action for facts in TABLE if facts.right in OF_NODE)
LISTS: Final = frozenset({Action.LIST, Action.NODE_LIST})
OF_ONE_QUEUE: Final = (
    frozenset(facts.action for facts in TABLE) - NAME_NO_QUEUE - {Action.CONFIGURE, Action.MOVE, *OF_COMMAND}
)
"""What is judged by one queue's or topic's name alone, where no others are named."""

RIGHTS: Final[dict[int, str]] = {int(facts.action): facts.right for facts in TABLE}


class _Over:
    """The queues that one right holds for."""

    def __init__(self, patterns: Iterable[str]) -> None:
        together = "|".join(f"(?:{translate(one)})" for one in patterns)
        self._matches: Callable[[str], object] = re.compile(together or NOTHING).match
        self._known: dict[str, bool] = {}

    def holds(self, queue: str) -> bool:
        """Whether it holds for a queue of that name, which need not be there."""
        known = self._known.get(queue)
        if known is None:
            if len(self._known) >= CACHED_MAX:
                self._known.clear()
            known = self._known[queue] = self._matches(queue) is not None
        return known


class Rights:
    """What somebody may do. `queues`: for each right over queues the patterns; `node`: rights over the node.

    `is_unlimited`: everything, without a look at names; `is_everywhere`: so with every queue. `before`: what it was
    until the access file was read again, if that was something else.
    """

    def __init__(self, queues: Mapping[str, Iterable[str]], node: Iterable[str] = (), *, is_all: bool = False) -> None:
        patterns = {right: tuple(queues.get(right, ())) for right in OF_QUEUES}
        self._patterns = patterns
        self._over = {right: _Over(its) for right, its in patterns.items()}
        held = set(node)
        self._node = frozenset({*held, Right.LOG} if Right.OPERATE in held else held)
        self.everywhere = frozenset(right for right in OF_QUEUES if EVERY_QUEUE in patterns[right])
        self._passed: dict[int, set[str]] = {action: set() for action in OF_ONE_QUEUE}
        self.is_everywhere = len(self.everywhere) == len(OF_QUEUES)
        self.is_unlimited = is_all or (self.is_everywhere and self._node == frozenset(OF_NODE))
        self.before: Rights | None = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Rights) and self.shown() == other.shown()

    def __hash__(self) -> int:
        return hash(tuple(self.shown()))

    def may(self, right: str, queue: str) -> bool:
        """Whether a right over queues holds for that one."""
        return right in self.everywhere or self._over[right].holds(queue)

    def has(self, right: str) -> bool:
        """Whether a right is held at all: over the node, or over some queues."""
        return right in self._node or bool(self._patterns.get(right))

    @property
    def has_some(self) -> bool:
        """Whether there is anything that may be done."""
        return bool(self._node) or any(self._patterns.values())

    def shown(self) -> list[str]:
        """As the access file has them: `produce:jobs*`, `look`, `operate`."""
        of_queues = [
            right if pattern == EVERY_QUEUE else f"{right}:{pattern}"
            for right, patterns in self._patterns.items()
            for pattern in patterns
        ]
        return [*of_queues, *(right for right in OF_NODE if right in self._node)]

    def missing(self, request: Request) -> str | None:
        """Find the right that the request needs and that is not held; None if it may be done.

        What names messages and no queue is judged here as far as it can be: whoever finds the messages has to ask
        `may` for theirs.
        """
        if self.is_unlimited or (self.is_everywhere and request.action not in OVER_NODE):
            return None
        passed = self._passed.get(request.action)
        name = request.topic if request.action in OF_TOPICS else request.queue
        if passed is not None and request.queues is None and name in passed:
            return None  # nearly always
        missing = self._looked_up(request)
        if missing is None and passed is not None and request.queues is None and name is not None:
            if len(passed) >= CACHED_MAX:
                passed.clear()
            passed.add(name)
        return missing

    def _looked_up(self, request: Request) -> str | None:
        # Also for an action that is unknown: who may do nothing learns nothing. What a session asks before it produces
        # tells no more than the produce would.
        is_sessions = request.action == Action.FIND and request.as_job
        right = Right.ANY if is_sessions else RIGHTS.get(request.action, Right.ANY)
        if right == Right.NONE:
            return None
        if request.action not in RIGHTS:
            return None if self.has_some else right  # who may nothing learns nothing, also of what there is not
        if isinstance(request, TransactionRequest):
            return next((missing for one in request.operations if (missing := self.missing(one))), None)
        if right == Right.ANY:
            return None if self.has_some else right
        if request.action in OF_TOPICS:
            right = OF_COMMAND.get(request.action, {}).get(request.command, right)
            held = self.has(right) if request.topic is None else self.may(right, request.topic)
            return None if held else right
        queue = request.queue
        if request.action in NAME_NO_QUEUE:
            return self._missing_over_node(right, request)
        if queue is not None and not self.may(right, queue):
            return right
        if request.action in NAME_QUEUES and request.queues is not None:
            return None if all(self.may(right, name) for name in request.queues) else right
        if queue is None:
            return None if self.has(right) else right
        return self._missing_for_other(queue, request)

    def _missing_over_node(self, right: str, request: Request) -> str | None:
        """Of what names no queue. A status tells of all queues together, and of the node: not for who may see some."""
        if request.action in (Action.NODE_STATUS, Action.NODE_METRICS) or (
            request.action == Action.CLUSTER and request.command in CLUSTER_LOOKS
        ):
            return None if Right.LOOK in self.everywhere or self._node else Right.LOOK
        return None if self.has(right) else right

    def _missing_for_other(self, queue: str, request: Request) -> str | None:
        """Messages move out of the queue into the one that it names: as if who names it consumed and produced them."""
        other = goes_to(request)
        if other is None:
            return None
        if not self.may(Right.CONSUME, queue):
            return Right.CONSUME
        return None if self.may(Right.PRODUCE, other) else Right.PRODUCE


EVERY_RIGHT: Final = Rights({right: [EVERY_QUEUE] for right in OF_QUEUES}, OF_NODE, is_all=True)


class Principal(NamedTuple):
    """Somebody who is known by a name, and what they may do."""

    name: str
    rights: Rights


ANONYMOUS: Final = "anonymous"
"""Who has shown no token, where there are some. Without an access file nobody is called so."""

ITSELF: Final = Principal("", EVERY_RIGHT)
"""Who asks on the node's own behalf."""


def not_allowed(request: Request, right: str, name: str = "") -> NotAllowedReply:
    """Refuse a request for want of a right, of who is known by that name.

    It tells nothing of whether a queue is there.
    """
    over = "for what the request names" if right in OF_QUEUES else "over the node"
    if right == Right.LOOK and request.action in NAME_NO_QUEUE and request.action not in LISTS:
        over = "for all queues"
    reason = f"the right {right} {over} is missing"
    if right == Right.ANY:
        reason = "nothing is allowed to this client: it has no rights at all"
    return NotAllowedReply(
        action=request.action,
        code=Code.ERROR,
        queue=request.queue,
        topic=request.topic,
        seq=request.seq,
        error=ErrorWord.NOT_ALLOWED,
        reason=reason,
        right=right,
        is_unproved=name == ANONYMOUS,
    )
