"""Several queues in turn, so that none starves: a node looks for a message in the order in which they are named."""

from collections.abc import Sequence

from quorate.messages import names_of


class Turns:
    """Of one consumer. `queues`: their names in the order in which they are asked now."""

    def __init__(self, queues: str | Sequence[str]) -> None:
        """Begin with these. Raises TypeError, and ValueError for no queue at all."""
        self.queues = names_of(queues)

    @property
    def asked(self) -> str | list[str]:
        """What a consume is given: a copy, which later turns leave alone."""
        return list(self.queues) if len(self.queues) > 1 else self.queues[0]

    def served(self, queue: str) -> None:
        """Put that one, which had some, last in the next turn."""
        if len(self.queues) > 1 and queue in self.queues:
            self.queues.remove(queue)
            self.queues.append(queue)
