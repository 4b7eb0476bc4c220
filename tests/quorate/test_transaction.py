"""Transactions by the library, sync and async, against real nodes."""

import asyncio
import threading
from typing import Any

import pytest

from quorate import AsyncClient, NotInFlightError, RefusedError, Worker
from quorate.delivered import DeliveredMessage
from quorate.errors import UnknownOutcomeError
from quorate.lost import Lost
from quorate.messages import Key
from quorate.nodes import Nodes
from quorate.protocol import Action
from quorate.trying import Trying
from tests.cluster import wait_for
from tests.conftest import StartNode
from tests.node import Node


@pytest.fixture
def node(start_node: StartNode) -> Node:
    return start_node()


def test_a_job_its_results_and_a_position_are_one(node: Node) -> None:
    with node.client() as client:
        client.create_topic("t", partitions=2)
        client.produce("jobs", {"n": 1})
        job = client.consume("jobs")
        assert job is not None
        with client.transaction() as transaction:
            confirmed = transaction.confirm(job)
            one = transaction.append("t", b"\x00\xff", partition=1, headers={"h": "1"})
            many = transaction.append_many("t", ["a", "b"], partition=0)
            at = transaction.commit_positions("t", "g", {0: 2})
            made = transaction.produce("next", {"of": 1}, key="k", delay=60)
            also = transaction.produce_many("next", [1, 2])
            nothing = transaction.confirm([])
            with pytest.raises(RuntimeError, match="not done"):
                _ = one.result
        assert (confirmed.result, nothing.result) == (1, 0)
        assert (one.result.partition, one.result.offset) == (1, 0)
        assert [place.offset for place in many.result] == [0, 1]
        assert at.result == {0: 2}
        assert client.show(made.result).data == {"of": 1}
        assert [client.show(msg_id).data for msg_id in also.result] == [1, 2]
        assert job.is_settled
        assert client.confirm(job) == 0
        assert [message.data for message in client.read("t", partitions=[1])] == [b"\x00\xff"]


def test_what_can_not_be_done_is_named_and_nothing_is_done(node: Node) -> None:
    with node.client() as client:
        client.create_topic("t", partitions=1)
        client.produce("jobs", 1)
        job = client.consume("jobs")
        assert job is not None

        def fails(topic: str, msg_id: int, error: type[Exception] | None = None) -> None:
            with client.transaction() as one:
                one.confirm(job)
                one.append("t", 1)
                one.append(topic, 1)
                one.release(msg_id)
                if error is not None:
                    raise error

        with pytest.raises(RefusedError, match=r"no_such_topic: operations\[2\]: ") as caught:
            fails("none", 1)
        assert caught.value.reply["index"] == 2
        with pytest.raises(NotInFlightError):
            fails("t", 999_999)
        with pytest.raises(ZeroDivisionError):
            fails("t", 1, ZeroDivisionError)
        with client.transaction() as one:
            pass
        with pytest.raises(RuntimeError, match="over"):
            one.append("t", 1)
        assert [*client.read("t")] == []
        assert client.confirm(job) == 1, "it is still in flight"


def test_wrong_arguments_are_told_before_anything_is_asked(node: Node) -> None:
    with node.client() as client, client.transaction() as one:
        with pytest.raises(TypeError, match="by its id"):
            one.confirm(Key("k"))  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            one.confirm(None)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="from 1 to"):
            one.append_many("t", [])
        reader = client.read("t")
        with pytest.raises(ValueError, match="nothing to commit"):
            one.commit(reader)


def test_what_a_groups_reader_gave_is_done_with_what_came_of_it(node: Node) -> None:
    """Read, made something of, appended and committed: each message has one result, though the reader begins anew."""
    with node.client() as client:
        client.create_topic("{t}.in", partitions=1)
        client.create_topic("{t}.out", partitions=1)
        client.append_many("{t}.in", list(range(20)))
        for _ in range(3):
            with client.read("{t}.in", group="g") as messages:
                for message in messages:
                    if message.data == 19:
                        break
                    with client.transaction() as one:
                        one.append("{t}.out", message.data * 2)
                        one.commit(messages)
                    if message.data % 7 == 6:
                        messages._places.not_done()
                        break
        assert [message.data for message in client.read("{t}.out")] == [2 * n for n in range(19)]


def test_async_transactions(node: Node) -> None:
    async def work() -> None:
        async with AsyncClient("127.0.0.1", node.port) as client:
            await client.create_topic("t", partitions=1)
            await client.produce("jobs", 1)
            job = await client.consume("jobs")
            assert job is not None
            async with client.transaction() as one:
                one.confirm(job)
                appended = one.append("t", "x", producer="p", number=1)
            assert appended.result.offset == 0
            assert job.is_settled

            async def fails() -> None:
                async with client.transaction() as one:
                    one.append("t", "y")
                    one.confirm(job)

            with pytest.raises(NotInFlightError):
                await fails()
            async with client.transaction() as again:
                confirmed = again.confirm(job)
                appended = again.append("t", "x", producer="p", number=1)
            assert (appended.result.offset, appended.result.is_duplicate) == (0, True)
            with pytest.raises(RuntimeError, match="not known any more"):
                _ = confirmed.result
            assert [message.data async for message in client.read("t")] == ["x"]

    asyncio.run(work())


def test_a_worker_leaves_alone_what_its_handler_has_confirmed_in_a_transaction(node: Node) -> None:
    with node.client() as client:
        client.create_topic("t", partitions=1)

        def handle(message: DeliveredMessage) -> None:
            with client.transaction() as one:
                one.confirm(message)
                one.append("t", message.data)

        workers = node.client()
        worker = Worker(workers, "jobs", handle, concurrency=2)
        working = threading.Thread(target=worker.run)
        working.start()
        client.produce_many("jobs", list(range(20)))
        wait_for(lambda: client.topic("t").partitions[0].next == 20)
        worker.stop()
        working.join()
        workers.close()
        assert sorted(message.data for message in client.read("t")) == list(range(20))
        assert (worker.counts["failed"], worker.counts["lost"]) == (0, 0)


def test_names_of_several_shards_are_refused_with_what_would_help(start_node: StartNode) -> None:
    with start_node(shards=3).client() as client:
        names = [f"t{n}" for n in range(6)]
        for name in names:
            client.create_topic(name, partitions=1)

        def fails() -> None:
            with client.transaction() as one:
                for name in names:
                    one.append(name, 1)

        with pytest.raises(RefusedError, match=r"several_shards: a transaction is of one shard: .* \{tag\}"):
            fails()
        for _ in range(40):  # the map of the shards is known by then, too
            for tag in ("{a}", "{b}", "{c}"):
                client.produce(f"{tag}.jobs", 1)
                job = client.consume(f"{tag}.jobs")
                assert job is not None
                with client.transaction() as one:
                    one.confirm(job)
                    one.produce(f"{tag}.next", 2)
        assert [client.monitor(f"{name}.next")["size"] for name in ("{a}", "{b}", "{c}")] == [40] * 3


def trying(*operations: Any) -> Trying:
    return Trying(Action.TRANSACTION, {"operations": [*operations]}, Nodes([("h", 1)]), 10.0, now=0.0)


def test_a_transaction_is_asked_for_again_where_it_can_not_be_done_twice() -> None:
    sent = Lost("the answer is lost", was_sent=True)
    cases: list[list[dict[str, Any]]] = [
        [{"action": Action.APPEND, "topic": "t", "data": 1}],
        [{"action": Action.CONFIRM, "msg_id": 5}, {"action": Action.COMMIT, "topic": "t"}],
        [{"action": Action.PRODUCE, "queue": "q", "data": 1, "key": "k"}],
    ]
    for operations in cases:
        with pytest.raises(UnknownOutcomeError):
            trying(*operations).lost(1.0, sent)
    for once in (
        {"action": Action.APPEND, "topic": "t", "data": 1, "producer": "p", "number": 3},
        {"action": Action.CONFIRM, "msg_id": 5, "delivery": 1},
    ):
        one = trying({"action": Action.PRODUCE, "queue": "q", "data": 1}, once)
        assert one.lost(1.0, sent) > 0
        assert one.replied(1.5, {"code": -1, "error": "unknown_outcome"}) is not None
        taken = {"code": -1, "error": "duplicate_key", "reason": "its own message has the key", "msg_id": 4}
        assert one.replied(2.0, taken) is None
        with pytest.raises(UnknownOutcomeError):
            one.ended(taken)
        gone = {"code": -1, "error": "no_such_message", "reason": "operations[0]: there is no message 5"}
        assert one.replied(2.0, gone) is None
        with pytest.raises(UnknownOutcomeError):
            one.ended(gone)
