"""Starting, changing and stopping.

| message | from | to | meaning |
|---|---|---|---|
| Attach | the worker | Checkpointer, BlockReader | whom it tells: it was started, on its own thread, before they were |
| Reconfigure | the worker | Listener, Router, QueueOwner | limits that changed |
| AccessChanged | the worker | Listener, Router | who may do what from now on |
| ShardFaults | the worker | Router | which of the node's other workers do not run, and why |
| MoveClient | Router | Listener | this client is better off with another worker |
| EndWaits | Replicator | Router, Listener | this node is leaving: clients that can be told so wait no more |
| HandOver, HandedOver | the worker, Replicator | the other | let another lead before this one stops; done |
| Stop | the worker, Listener, QueueOwner, Replicator | Listener, Router, QueueOwner, Replicator, Links | see below |
| Stopped | Replicator | Listener | nothing is open any more |

Stop goes from the worker to the Listener, the Router, the QueueOwner, the Replicator and the Links: each finishes what
is open there, and tells the next.
"""

from typing import Any

import msgspec

from actors.messages.mailbox import Mailbox


class Attach(msgspec.Struct):
    """Whom the Checkpointer tells."""

    replicator: Mailbox[Any]
    owner: Mailbox[Any]


class Reconfigure(msgspec.Struct):
    """Take over the limits that can change while running. `hides`: names that are virtual queues' from now on."""

    limits: Any
    hides: tuple[str, ...] = ()


class AccessChanged(msgspec.Struct):
    """What the access file says now: an `actors.gateway.access.AccessTable`."""

    table: Any


class ShardFaults(msgspec.Struct):
    """Why the workers of these shards do not run; those of all others do."""

    faults: dict[int, str]


class MoveClient(msgspec.Struct):
    """Let the worker of that shard go on with the client, when nothing of it is under way."""

    client: Any
    shard: int


class EndWaits(msgspec.Struct):
    """Clients whose protocol has a word for it are told that this node is leaving, where they wait for messages.

    `is_leaving` False: it is not any more, and they may wait.
    """

    is_leaving: bool = True


class HandOver(msgspec.Struct):
    """This node is about to stop: let another lead, and say `HandedOver`."""

    reply_to: "Mailbox[HandedOver]"


class HandedOver(msgspec.Struct):
    """This node does not lead any more, or there is nobody else who could."""


class Stop(msgspec.Struct):
    """Finish what is open, make it durable, and say `Stopped`."""

    reply_to: "Mailbox[Stopped]"


class Stopped(msgspec.Struct):
    """Nothing is open here any more."""

    actor: str
