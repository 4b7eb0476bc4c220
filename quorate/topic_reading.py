"""What the sync and the async reader of a topic have in common: what they were asked for, and where they are."""

import time
import uuid
from collections.abc import Sequence
from typing import Generic, TypeVar

from quorate.streams import EARLIEST, Start
from quorate.topic_places import Places

ClientT = TypeVar("ClientT")


class TopicReading(Generic[ClientT]):
    """A reader's base. `member`: the name by which the group knows it; `group` None: it reads alone.

    Raises ValueError for what a group's member can't ask.
    """

    def __init__(
        self,
        client: ClientT,
        topic: str,
        group: str | None,
        *,
        partitions: Sequence[int] | None = None,
        start: Start = EARLIEST,
        follow: bool | None = None,
        session: float = 30.0,
        count: int = 100,
    ) -> None:
        if group is not None and (partitions is not None or follow is False):
            raise ValueError("a group's members get their partitions from it, and follow")
        self.member = f"{uuid.uuid4()}"
        self.group = group
        self._client = client
        self._topic = topic
        self._count = count
        self._partitions = partitions
        self._follows = bool(follow)
        self._places = Places(start, session, time.monotonic())
        self._closed = self._begun = False
        self._fault: Exception | None = None

    @property
    def behind_current(self) -> tuple[str, str, dict[int, int], str, int]:
        """What is committed when the message that was given last is done: topic, group, positions, member, generation.

        Raises ValueError where there is nothing to commit.
        """
        found = self._places.behind_current
        if self.group is None or found is None:
            raise ValueError("there is nothing to commit: the reader has no group, or has given no message")
        index, offset, generation = found
        return self._topic, self.group, {index: offset}, self.member, generation
