"""What replies show of topics, partitions and groups."""

from quorate.stream_replies import GroupPartition, GroupRow, MetaqGroupRow, MetaqPlace, PartitionRow, TopicRow
from storage.partition import Partition
from storage.tails import Group, TopicState


def partition_row(partition: Partition) -> PartitionRow:
    """Show a partition, as far as it is committed."""
    messages = partition.settled - partition.first
    return PartitionRow(
        partition.index,
        partition.first,
        partition.settled,
        messages,
        partition.settled_position - partition.first_position,
        partition.first_at if messages else None,
        partition.last_at or None,
        partition.first_position,
    )


def lag_of(topic: TopicState, group: Group) -> int:
    """Count the messages that a group has not read yet."""
    lag = 0
    for partition in topic.partitions:
        at = max(group.offsets.get(partition.index, 0), partition.first)
        lag += max(partition.settled - at, 0)
    return lag


def lag_s_of(partition: Partition, position: int, now: float) -> float | None:
    """Say how old the first message is that was not read yet, where that is known without a look at the disk (s).

    0.0: all were read.
    """
    at = max(position, partition.first)
    if at >= partition.settled:
        return 0.0
    if at >= partition.held_from[0]:
        first = next(partition.in_memory(at), None)
        return None if first is None else max(now - first.produced_at, 0.0)
    return max(now - partition.first_at, 0.0) if at == partition.first else None


def group_row(topic: TopicState, name: str, group: Group, owners: dict[int, str], now: float) -> GroupRow:
    """Show a group. `owners`: who reads which partition. `with_places` adds where it is in each."""
    lag, lag_s = 0, None
    for partition in topic.partitions:
        at = max(group.offsets.get(partition.index, 0), partition.first)
        if at < partition.settled:
            lag += partition.settled - at
            its = lag_s_of(partition, at, now)
            if its is not None and (lag_s is None or its > lag_s):
                lag_s = its
    return GroupRow(name, len({*owners.values()}), lag, group.at, lag_s if lag else 0.0)


def with_places(row: GroupRow, topic: TopicState, group: Group, owners: dict[int, str], now: float) -> GroupRow:
    """Add where a group is in each partition."""
    row.partitions = []
    for partition in topic.partitions:
        position = group.offsets.get(partition.index)
        at = max(position or 0, partition.first)
        lag = max(partition.settled - at, 0)
        lag_s = lag_s_of(partition, at, now)
        row.partitions.append(GroupPartition(partition.index, position, lag, lag_s, owners.get(partition.index)))
    return row


def with_lag(row: MetaqGroupRow, topic: TopicState) -> MetaqGroupRow:
    """Add how far a group of MetaQ's is behind (bytes)."""
    places: list[MetaqPlace] = []
    for one in row.partitions:
        if one.partition < len(topic.partitions):
            lag = max(topic.partitions[one.partition].settled_position - one.position, 0)
            places.append(MetaqPlace(one.partition, one.position, one.msg_id, lag, one.owner))
    return MetaqGroupRow(row.group, row.members, places)


def topic_row(topic: TopicState) -> TopicRow:
    """Show a topic in a list."""
    settings, partitions = topic.settings, topic.partitions
    return TopicRow(
        topic.name,
        len(partitions),
        sum([one.settled - one.first for one in partitions]),
        sum([one.settled_position - one.first_position for one in partitions]),
        len(topic.groups),
        settings.keep_s,
        settings.keep_bytes,
        max([one.last_at for one in partitions]) or None,
        max([lag_of(topic, group) for group in topic.groups.values()], default=0),
        sum([one.settled for one in partitions]),
        settings.accept_append,
        settings.accept_read,
    )
