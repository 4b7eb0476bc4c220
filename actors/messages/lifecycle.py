"""Messages: lifecycle."""

from dataclasses import dataclass
from typing import Any

import pykka


@dataclass(slots=True)
class Continue:
    """To itself: go on with work that was cut into pieces."""


@dataclass(slots=True)
class CheckpointDue:
    """To itself: entries have gathered for long enough."""


@dataclass(slots=True)
class TimePassed:
    """To itself: the moment has come that a timer was set for."""


@dataclass(slots=True)
class Reconfigure:
    """Take over the limits that can change while running."""

    limits: Any


@dataclass(slots=True)
class Stop:
    """Finish what is open, make it durable, and say `Stopped`."""

    reply_to: "pykka.ActorRef[Any]"


@dataclass(slots=True)
class Stopped:
    """Nothing is open here any more."""

    actor: str


@dataclass(slots=True)
class HandOver:
    """This node is about to stop: let another lead, and say `HandedOver`."""

    reply_to: "pykka.ActorRef[Any]"


@dataclass(slots=True)
class HandedOver:
    """It does not lead any more, or there is nobody else who could."""
