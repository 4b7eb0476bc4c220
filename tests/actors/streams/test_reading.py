"""Reads of what blocks hold, which are answered in a later turn: of gaps, races, and topics that are gone meanwhile."""

from typing import Any

import pytest

import actors.shard.disk_reads
import quorate_compiled
from actors.messages.blocks import BlocksRead, ReadBlocks
from actors.shard.disk_reads import ASKED_MAX
from quorate.protocol import Action
from storage.block_rows import Stored, read_stored
from storage.blocks import Block
from storage.log_store import LogStore
from storage.partition import Partition
from storage.records import DropTopic
from tests.actors.queues.shard import Shard
from tests.storage.memory import MemoryTables

interpreted = pytest.mark.skipif(quorate_compiled.running() == "compiled", reason="compiled code can't be replaced")


class OnDisk(Shard):
    """A shard of a leader, with a topic `t`, and a disk that is asked when the test says so."""

    def __init__(self, partitions: int = 1, **settings: Any) -> None:
        super().__init__()
        self.store = LogStore(MemoryTables(), 0)
        self.broker.context.view.leader_node_id = self.broker.context.view.node_id
        assert self.ask(Action.TOPIC, command="create", topic="t", partitions=partitions, **settings)["code"] == 0

    def partition(self, index: int = 0) -> Partition:
        return self.state.topics.by_name["t"].partitions[index]

    def append(self, data: Any = "x", partition: int = 0) -> None:
        assert self.ask(Action.APPEND, topic="t", data=data, partition=partition)["code"] == 0

    def close(self, index: int = 0) -> list[Block]:
        """Make blocks of a partition's messages; they are to be stored."""
        self.state.topics.tails.close(self.partition(index))
        return self.state.topics.tails.take_to_store()

    def stored(self, blocks: list[Block], *, is_there: bool = True) -> None:
        """Store these; or not, as behind a snapshot."""
        if is_there:
            self.store.store_blocks([block.row() for block in blocks])
        for block in blocks:
            self.state.topics.tails.stored(block.key.number, block.key.partition, block.end)

    def asked(self) -> list[ReadBlocks]:
        """Take what the disk is asked."""
        return self.broker.context.disk.take_asks()

    def answers(self, asks: list[ReadBlocks]) -> list[BlocksRead]:
        """What the disk says now."""
        with self.store.tables.read() as transaction:
            return [
                BlocksRead(one.serial, read_stored(transaction, one.wanted, one.count, one.bytes_max)) for one in asks
            ]

    def tell(self, answers: list[BlocksRead]) -> None:
        for answer in answers:
            self.broker.told(self.now, answer)
        self.settle()

    def pump(self) -> None:
        """Have the disk answer all that it is asked."""
        while asks := self.asked():
            self.tell(self.answers(asks))

    def read(self, **fields: Any) -> int:
        return self.send(Action.READ, topic="t", **fields)

    def offsets(self, order: int) -> list[int]:
        return [one["offset"] for one in self.replies[order]["messages"]]


@pytest.mark.parametrize("wanted", [{"offset": 0}, {"time": 1.0}])
def test_a_topic_that_is_made_anew_meanwhile_has_other_partitions(wanted: dict[str, Any]) -> None:
    shard = OnDisk(8)
    shard.append(partition=7)
    shard.stored(shard.close(7))
    order = shard.read(partition=7, **wanted)
    [ask] = shard.asked()
    shard.ask(Action.TOPIC, command="remove", topic="t")
    shard.ask(Action.TOPIC, command="create", topic="t", partitions=1)
    shard.tell([BlocksRead(ask.serial, Stored([], [], None, 0))])
    assert shard.replies[order]["error"] == "wrong_partition"


@interpreted
def test_what_raises_on_an_answer_ends_its_call_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    shard = OnDisk()
    shard.append()
    shard.stored(shard.close())
    order = shard.read(offset=0)

    def fail(*_: Any) -> None:
        raise ZeroDivisionError

    [reading] = [machine for machine in shard.broker.machines if Action.READ in machine.actions()]
    monkeypatch.setattr(reading, "_answer", fail)
    shard.pump()
    assert shard.replies[order]["error"] == "internal_error"


@pytest.mark.parametrize("wanted", ["time", "position"])
def test_what_is_looked_for_where_blocks_are_missing_is_not_found_behind_them(wanted: str) -> None:
    shard = OnDisk(keep_s=1000)
    begun = shard.now
    for number in range(30):
        shard.append(number)
        shard.now += 100
    shard.stored(shard.close(), is_there=False)
    shard.state.topics.tails.gaps[(1, 0)] = [(0, 30)]
    shard.append("last")
    order = shard.read(**({"time": begun + 500} if wanted == "time" else {"position": 100}))
    shard.pump()
    assert shard.replies[order]["error"] == "no_leader", "it is on its way here: who asks again gets it"
    reset = shard.send(Action.GROUP, command="reset", topic="t", group="g", time=begun + 500)
    trim = shard.send(Action.TOPIC, command="trim", topic="t", time=begun + 500)
    shard.pump()
    assert [shard.replies[one]["error"] for one in (reset, trim)] == ["no_leader"] * 2
    for _ in range(3):
        shard.pass_time(6)
        shard.pump()
    assert shard.partition().first == 0, "nothing goes that is younger than it may be"


def test_a_block_that_is_stored_while_it_is_looked_for_is_found() -> None:
    shard = OnDisk(keep_s=1000)
    for number in range(5):
        shard.append(number)
    shard.stored(shard.close())
    shard.pass_time(995)
    late = shard.now
    for number in range(5, 10):
        shard.append(number)
    blocks = shard.close()
    order = shard.read(time=late)
    shard.pass_time(16)
    answers = shard.answers(shard.asked())
    shard.stored(blocks)  # told before the answers
    shard.tell(answers)
    shard.pump()
    assert shard.offsets(order) == [5, 6, 7, 8, 9]
    shard.pass_time(1)
    assert shard.partition().first == 5


def test_who_waits_for_a_time_or_a_position_gets_nothing_from_before() -> None:
    shard = OnDisk()
    waits = [shard.read(time=shard.now + 100, wait=50), shard.read(position=40, wait=50)]
    shard.now += 1
    shard.append("early")
    assert not any(order in shard.replies for order in waits)
    shard.append("second")
    assert shard.offsets(waits[1]) == [1]
    shard.pass_time(60)
    assert (shard.offsets(waits[0]), shard.replies[waits[0]]["next"]) == ([], 2)


def test_a_trim_that_is_not_committed_is_told_to_nobody() -> None:
    shard = OnDisk()
    for number in range(5):
        shard.append(number)
    shard.commits = False
    trim = shard.send(Action.TOPIC, command="trim", topic="t", offset=4)
    order = shard.read(offset=0)
    assert not {trim, order} & {*shard.replies}
    shard.commit()
    assert (shard.replies[order]["error"], shard.replies[order]["next"]) == ("trimmed", 4)


def test_many_partitions_are_trimmed_and_reset_at_once() -> None:
    shard = OnDisk(600)
    for partition in range(600):
        shard.append(partition=partition)
    shard.stored(shard.close(599))
    reset = shard.send(Action.GROUP, command="reset", topic="t", group="g", time=1.0)
    shard.pump()
    assert len(shard.replies[reset]["positions"]) == 600
    trim = shard.send(Action.TOPIC, command="trim", topic="t", offset="latest")
    shard.pump()
    assert shard.replies[trim]["retired"] == 600


def test_retention_leaves_reads_for_others_and_comes_to_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(actors.shard.disk_reads, "READS_MAX", 3)
    shard = OnDisk(9, keep_s=10)
    for partition in range(9):
        shard.append(partition=partition)
        shard.stored(shard.close(partition))
    for _ in range(9):
        shard.pass_time(6)
        shard.pump()
    assert [shard.partition(index).first for index in range(9)] == [1] * 9


def test_what_groups_have_not_read_stays_up_to_so_many_bytes() -> None:
    shard = OnDisk(keep_bytes=100_000, keep_for_groups=True, keep_for_groups_bytes=1_000_000)
    shard.ask(Action.COMMIT, topic="t", group="g", positions={"0": 0})
    for _ in range(1100):
        shard.append("x" * 1000)
    shard.pass_time(11)
    shard.pump()
    assert 119 <= shard.partition().first <= 125, "a million bytes stay"
    shard.ask(Action.COMMIT, topic="t", group="g", positions={"0": 790})
    for _ in range(3):
        shard.pass_time(6)
        shard.pump()
    assert shard.partition().first == 790, "what all groups have read goes"


def test_who_waits_on_a_node_that_does_not_lead_is_told_when_the_topic_goes() -> None:
    """The leader's records come in, and what asks for the topic goes there from now on."""
    shard = OnDisk()
    shard.append()
    shard.broker.context.view.leader_node_id += 1
    wait = shard.read(offset=1, wait=50)
    assert wait not in shard.replies
    state = shard.state
    state.follow(state.trans_id + 1, DropTopic("t", 1), shard.now)
    shard.broker.followed(state.trans_id)
    [call] = shard.broker.context.take_not_here()
    assert (call.order, call.elsewhere) == (wait, True)


def test_few_reads_are_asked_at_once_and_what_nobody_waits_for_is_not_asked() -> None:
    """Or a thousand answers of a megabyte would lie there until they are taken."""
    shard = OnDisk()
    shard.append()
    shard.stored(shard.close())
    orders = [shard.read(offset=0) for _ in range(30)]
    first = shard.asked()
    assert len(first) == ASKED_MAX
    assert not shard.asked()
    shard.tell(shard.answers(first))
    shard.pump()
    assert all(shard.offsets(order) == [0] for order in orders)
    shard.read(offset=0)
    shard.broker.context.disk.take_calls()
    assert not shard.asked()


def test_an_answer_to_a_state_that_is_gone_is_none_to_the_next_ones_question() -> None:
    shards = [OnDisk(), OnDisk()]
    asks = []
    for data, shard in enumerate(shards):
        shard.append(data)
        shard.stored(shard.close())
        order = shard.read(offset=0)
        asks.append(shard.asked()[0])
    shards[1].tell(shards[0].answers([asks[0]]))
    assert order not in shards[1].replies
