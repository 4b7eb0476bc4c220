"""The table of a shard's machines: what each is for stands in its module."""

from actors.queues.consuming import Consuming
from actors.queues.delivery import Delivery
from actors.queues.moving import Moving
from actors.queues.named_messages import NamedMessages
from actors.queues.producing import Producing
from actors.queues.queries import Queries
from actors.queues.queue_admin import QueueAdmin
from actors.queues.readers import Readers
from actors.queues.ripening import Ripening
from actors.queues.settling import Confirming, Settling
from actors.queues.showing import Showing
from actors.shard.machine import Machine, ShardContext


def queue_machines(context: ShardContext, delivery: Delivery) -> list[Machine]:
    """Make those of one shard, in the order in which time passes for them."""
    admin = QueueAdmin(context, delivery)
    named = NamedMessages(context.ledger, context.jobs)
    readers = Readers(context)
    showing = Showing(context, delivery)
    return [
        Consuming(context, delivery, showing.cancel),
        showing,
        Confirming(context, named),
        Settling(context, delivery, named),
        Moving(context, delivery),
        admin,
        Producing(context, delivery, admin),
        Queries(context, delivery, readers),
        readers,
        Ripening(context.ledger.state, context.jobs),
    ]
