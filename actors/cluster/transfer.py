"""A leader's place on its way to another node."""

from dataclasses import dataclass

from actors.messages.call import Call


@dataclass
class Transfer:
    """This node's place is to go to `target`. `is_drained`: nothing is open any more; `is_told`: it was told so.

    `call` asked for it; `is_for_stop`: the worker waits for it.
    """

    target: int
    deadline: float
    call: Call | None = None
    is_for_stop: bool = False
    is_drained: bool = False
    is_told: bool = False
