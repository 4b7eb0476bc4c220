"""The table of a shard's machines: those of its topics, behind those of its queues (`actors.queues.machines`)."""

from actors.queues.consuming import Consuming
from actors.queues.delivery import Delivery
from actors.queues.machines import queue_machines
from actors.queues.producing import Producing
from actors.shard.machine import Machine, ShardContext
from actors.streams.committing import Committing
from actors.streams.coordinator import Coordinator
from actors.streams.grouping import Grouping
from actors.streams.places import Finder
from actors.streams.preparing import Preparing
from actors.streams.reading import Reading
from actors.streams.topic_admin import TopicAdmin
from actors.streams.transactions import Transacting
from actors.streams.writing import Writing


def shard_machines(context: ShardContext) -> list[Machine]:
    """Make those of one shard, in the order in which time passes for them."""
    delivery = Delivery(context.ledger, leases_are_committed=context.leases_are_committed)
    finder = Finder(context.disk, context.ledger.state.topics.tails)
    reading = Reading(context, delivery)
    coordinator = Coordinator(context.ledger)
    committing = Committing(context, coordinator, finder)
    grouping = Grouping(context, delivery, coordinator, committing)
    of_queues = queue_machines(context, delivery)
    producing = next(machine for machine in of_queues if isinstance(machine, Producing))
    consuming = next(machine for machine in of_queues if isinstance(machine, Consuming))
    consuming.also_cancels += [reading.cancel, grouping.cancel]
    writing = Writing(context, producing)
    preparing = Preparing(context, writing)
    machines = [
        *of_queues,
        TopicAdmin(context, finder, coordinator, reading, grouping),
        writing,
        reading,
        grouping,
        committing,
        preparing,
    ]
    return [*machines, Transacting(context, delivery, producing, writing, preparing, machines)]
