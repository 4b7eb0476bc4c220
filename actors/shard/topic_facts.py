"""Which topics a shard has, for who registers them."""

from actors.messages.registering import ShardTopics, TellTopics, TopicFacts
from storage.topics import Topics


def tell_topics(topics: Topics, message: TellTopics) -> None:
    """Tell of each how many partitions it has, and what it accepts."""
    told = {
        name: TopicFacts(len(one.partitions), one.settings.accept_append, one.settings.accept_read)
        for name, one in topics.by_name.items()
    }
    message.registrar.tell(ShardTopics(told))
