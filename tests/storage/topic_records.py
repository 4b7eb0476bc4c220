"""Records of topics, made at random as a leader makes them."""

from random import Random

from storage.producers import Seen, last_serial
from storage.records import (
    Append,
    Decide,
    DropGroup,
    DropTopic,
    Encoding,
    Offsets,
    OfPrepared,
    OfTopic,
    Prepare,
    Put,
    Retire,
    Topic,
)
from storage.state import ShardState

NAMES = ["t1", "t2"]


def random_record(random: Random, state: ShardState, now: float, size: int = 9) -> OfTopic | OfPrepared | None:
    """Make the next record about a topic; None: there is nothing to be said."""
    topics = state.topics
    name = random.choice(NAMES)
    topic = topics.by_name.get(name)
    if topic is None:
        return Topic(name, topics.next_number, random.randrange(1, 4), 60.0, 1000)
    kind = random.random()
    if kind > 0.95:
        xid = random.choice(["XID:1:aa:bb:q", "XID:1:aa:cc:q", "XID:2:" + "a" * 128 + ":" + "b" * 128 + ":q"])
        if topics.prepared.find(xid) is not None:
            return Decide("", xid, random.random() < 0.5)
        puts = [
            Put(
                name,
                topic.number,
                0,
                b"x" * random.randrange(size),
                Encoding.PLAIN,
                attribute=random.choice([None, "é"]),
            )
            for _ in range(random.randrange(1, 4))
        ]
        return Prepare("", xid, now, puts)
    if kind < 0.03:
        return DropTopic(name, topic.number)
    if kind < 0.06:
        return Topic(name, topic.number, len(topic.partitions) + random.randrange(2), 5.0, 0, made_at=now)
    if kind < 0.16:
        chosen = [one for one in topic.partitions if one.settled > one.first and random.random() < 0.7]
        if not chosen:
            return None
        record = Retire(name, topic.number, [], [], [], [])
        for partition in chosen:
            kept = list(partition.in_memory(partition.first))
            if not kept:
                continue
            one = random.choice(kept)
            record.partitions.append(partition.index)
            record.offsets.append(one.offset)
            record.positions.append(one.position)
            record.ats.append(one.produced_at)
        return record if record.partitions else None
    if kind < 0.26:
        group = random.choice(["g", "h"])
        if group in topic.groups and random.random() < 0.2:
            return DropGroup(name, topic.number, group)
        index = random.randrange(len(topic.partitions))
        return Offsets(
            name, topic.number, group, [index], [topic.partitions[index].next], now, random.choice([0.0, 30.0])
        )
    partition = random.choice(topic.partitions)
    producer = random.choice([None, None, "p", "q"])
    seen = None if producer is None else topics.producers.known.get((topic.number, producer))
    return Append(
        name,
        topic.number,
        partition.index,
        partition.next,
        bytes([random.randrange(256)]) * random.randrange(size),
        random.choice([Encoding.PLAIN, Encoding.TEXT, Encoding.JSON]),
        now,
        random.choice([None, "k"]),
        random.choice([None, {"a": "b"}]),
        random.choice([None, "é"]),
        random.choice([0, 2]),
        producer,
        0 if producer is None else last_serial(seen) + _step(random, seen, partition.index, partition.next),
    )


def _step(random: Random, seen: Seen | None, index: int, offset: int) -> int:
    """By how much a producer's number is greater than its last: what one append gets in a partition has no holes."""
    if seen is None:
        return 1
    last = [run for run in seen.serials[-1][1] if run.partition == index]
    return random.randrange(2) if not last or last[0].offset + last[0].length == offset else 1


def topic_facts(state: ShardState) -> object:
    """All that a state says of its topics but where their messages are."""
    topics = state.topics
    return (
        topics.next_number,
        {
            name: (
                topic.settings,
                [(one.first, one.first_position, one.next, one.next_position) for one in topic.partitions],
                {group: (its.offsets, its.at, its.session_s) for group, its in topic.groups.items()},
            )
            for name, topic in topics.by_name.items()
        },
        dict(topics.producers.known),
        topics.prepared.by_key,
    )
