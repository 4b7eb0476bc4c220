"""Lanes: one message of a key at a time, in order, and a partition is done up to its first that is not finished."""

from random import Random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from quorate.streams import TopicMessage
from quorate.topic_lanes import Job, Lanes


def job(offset: int, key: str | None = None, partition: int = 0, generation: int = 1) -> Job:
    return Job(TopicMessage("t", partition, offset, None, offset, 0.0, 0, key), generation)


def test_messages_of_one_key_wait_for_each_other_and_others_do_not() -> None:
    lanes = Lanes()
    jobs = [job(0, "a"), job(1, "a"), job(2), job(3, "b"), job(4)]
    for one in jobs:
        lanes.add(one)
    begun = [lanes.take() for _ in range(4)]
    assert begun == [jobs[0], jobs[2], jobs[3], jobs[4]]
    assert lanes.take() is None
    assert lanes.finished(jobs[2]) == 0
    assert lanes.done_with(jobs[0]) == 1
    assert lanes.finished(jobs[0]) == 1
    assert lanes.take() is jobs[1]
    assert (lanes.finished(jobs[4]), lanes.finished(jobs[3])) == (1, 1)
    assert lanes.partitions == {0}
    assert lanes.finished(jobs[1]) == 5
    assert (lanes.unfinished, lanes.partitions) == (0, set())


def test_a_partition_that_came_back_is_counted_anew() -> None:
    lanes = Lanes()
    old, again = job(7, "a", generation=1), job(7, "a", generation=3)
    for one in (old, job(8, "b", generation=1), again):
        lanes.add(one)
    assert lanes.take() is old
    assert lanes.finished(old) == 8
    assert lanes.done_with(again) == 8


@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from([None, "a", "b"])), max_size=30), st.integers(0, 1000))
def test_each_is_given_once_in_the_order_of_its_key_and_nothing_is_done_too_early(messages: Any, seed: int) -> None:
    draw, lanes = Random(seed), Lanes()
    offsets = dict.fromkeys(range(3), 0)
    waiting = []
    for partition, key in messages:
        waiting.append(job(offsets[partition], key, partition))
        offsets[partition] += 1
    unfinished = {(one.message.partition, one.message.offset) for one in waiting}
    begun: list[Job] = []
    given_out: list[Job] = []
    done = dict.fromkeys(range(3), 0)
    added = 0
    while unfinished:
        choice = draw.randrange(3)
        if choice == 0 and added < len(waiting):
            lanes.add(waiting[added])
            added += 1
        elif choice == 1 and (one := lanes.take()) is not None:
            assert all(other.lane != one.lane for other in begun)
            begun.append(one)
            given_out.append(one)
        elif begun:
            one = begun.pop(draw.randrange(len(begun)))
            partition = one.message.partition
            at = lanes.finished(one)
            unfinished.remove((partition, one.message.offset))
            there = [o.message.offset for o in waiting[:added] if o.message.partition == partition]
            left = [offset for offset in there if (partition, offset) in unfinished]
            assert at == min(left, default=max(there) + 1)
            assert at >= done[partition]
            done[partition] = at
    for lane in {one.lane for one in given_out}:
        its = [one.message.offset for one in given_out if one.lane == lane]
        assert its == sorted(its)
    assert lanes.unfinished == 0
    assert lanes.take() is None
