"""Topics by the library, sync and async, against real nodes."""

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from quorate import Appended, AsyncClient, Client, NewTopicMessage, RefusedError, TopicMessage, UnavailableError
from quorate.calls import Ask
from quorate.protocol import Action
from quorate.topic_calls import TopicCalls
from tests.cluster import wait_for
from tests.conftest import StartNode
from tests.node import Node


@pytest.fixture
def node(start_node: StartNode) -> Node:
    return start_node()


def test_messages_are_appended_and_read_by_offset_time_and_partition(node: Node) -> None:
    with node.client() as client:
        view = client.create_topic("t", partitions=2, keep_s=3600)
        assert ([row.next for row in view.partitions], view.keep_s) == ([0, 0], 3600)
        assert client.create_topic("t", partitions=2, keep_s=3600).made_at == view.made_at, "it is there as wanted"
        assert client.append("t", {"a": 1}, key="k", headers={"h": "1"}, attribute="red").offset == 0
        begun = time.time()
        appended = client.append_many("t", [b"\x00\xff", NewTopicMessage("x", key="k"), None], partition=1)
        assert [one.partition for one in appended] == [1, 1, 1]
        messages = [*client.read("t")]
        assert {(one.partition, one.offset) for one in messages} >= {(1, one.offset) for one in appended}
        first = next(one for one in messages if one.attribute)
        assert (first.data, first.key, first.headers, first.attribute) == ({"a": 1}, "k", {"h": "1"}, "red")
        assert first.as_dict()["data"] == {"a": 1}
        assert [one.data for one in client.read("t", partitions=[1], start=datetime.fromtimestamp(begun, UTC))] == [
            b"\x00\xff",
            "x",
            None,
        ]
        part = client.read_part("t", 1, appended[1].offset, count=1)
        assert ([one.data for one in part.messages], part.next) == (["x"], appended[1].offset + 1)
        assert client.read_part("t", 1, "latest").messages == []
        assert [row.name for row in client.topics("t*")] == ["t"]
        assert client.trim_topic("t", before="latest") == 4
        assert [*client.read("t")] == []
        with pytest.raises(RefusedError, match="trimmed"):
            client.read_part("t", 1, 0)
        assert client.remove_topic("t") == 0
        with pytest.raises(RefusedError, match="no_such_topic"):
            client.append("t", 1)


def test_an_append_with_a_number_is_done_once(node: Node) -> None:
    with node.client() as client:
        client.create_topic("t", partitions=1)
        first = client.append("t", "a", producer="p", number=1)
        again = client.append("t", "a", producer="p", number=1)
        assert again == Appended(0, first.offset, None, is_duplicate=True)
        both = client.append_many("t", ["b", "c"], producer="p", number=2, expected=1)
        assert [(one.offset, one.is_duplicate) for one in both] == [(1, False), (2, False)]
        both = client.append_many("t", ["b", "c"], producer="p", number=2)
        assert [(one.offset, one.is_duplicate) for one in both] == [(1, True), (2, True)]
        assert [one.data for one in client.read("t")] == ["a", "b", "c"]
        with pytest.raises(RefusedError, match="offset_conflict") as caught:
            client.append("t", "d", expected=1)
        assert caught.value.reply["next"] == 3


def test_a_group_goes_on_where_it_was(node: Node) -> None:
    with node.client() as client:
        client.create_topic("t", partitions=3)
        for number in range(30):
            client.append("t", number, key=f"{number}")
        seen: list[int] = []
        with client.read("t", group="g") as messages:
            for message in messages:
                seen.append(message.data)
                if len(seen) == 10:
                    break
        failed: list[int] = []

        def fail() -> None:
            with client.read("t", group="g") as messages:
                failed.append(next(messages).data)
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            fail()
        rest = take(client, "g", 20)
        assert failed[0] in rest, "what was worked on when the loop failed comes again"
        assert sorted(seen + rest) == [*range(30)]
        assert client.group("t", "g").lag == 0
        client.reset_group("t", "g", 1, partition=0)
        again = take(client, "g", client.group("t", "g").lag)
        assert {*again} < {*range(30)}
        client.remove_group("t", "g")
        assert client.groups("t") == []


def take(client: Client, group: str, count: int) -> list[Any]:
    seen: list[Any] = []
    with client.read("t", group=group) as messages:
        for message in messages:
            seen.append(message.data)
            if len(seen) == count:
                break
    return seen


def test_members_share_the_partitions_and_get_those_of_one_that_leaves(node: Node) -> None:
    with node.client() as client:
        client.create_topic("t", partitions=4)
        stop = threading.Event()
        seen: dict[str, list[TopicMessage]] = {"a": [], "b": []}
        ends = {name: threading.Event() for name in seen}

        def member(name: str) -> None:
            with node.client() as own, own.read("t", group="g", session=6) as messages:
                for message in messages:
                    seen[name].append(message)
                    if ends[name].is_set() or stop.is_set():
                        return

        threads = [threading.Thread(target=member, args=(name,)) for name in seen]
        for thread in threads:
            thread.start()
        count = 0

        def append() -> None:
            nonlocal count
            for partition in range(4):
                client.append("t", count, partition=partition)
                count += 1

        def owners() -> set[str | None]:
            return {row.owner for row in client.group("t", "g").partitions or ()}

        wait_for(lambda: bool(client.groups("t")) and len(owners() - {None}) == 2)
        append()
        wait_for(lambda: len(seen["a"]) + len(seen["b"]) == 4)
        assert len(seen["a"]) == 2, "each has half of the partitions"
        ends["a"].set()
        begun = time.monotonic()
        append()
        threads[0].join(20)
        append()
        wait_for(lambda: {one.data for one in [*seen["a"], *seen["b"]]} == {*range(12)})
        assert time.monotonic() - begun < 5, "a member that leaves is not waited for"
        stop.set()
        append()
        threads[1].join(20)
        assert not any(thread.is_alive() for thread in threads)


def test_a_reader_that_is_left_without_a_word_leaves_its_group(node: Node) -> None:
    with node.client() as client:
        client.create_topic("t", partitions=1)
        client.append_many("t", ["a", "b"])

        def leave() -> None:
            for message in client.read("t", group="g", session=6):
                assert message.data == "a"
                break

        leave()
        wait_for(lambda: client.groups("t")[0].members == 0)
        assert take(client, "g", 2) == ["a", "b"], "nobody has said that the body was done with it"


def test_a_reader_goes_on_behind_what_is_gone_and_follows(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    with node.client() as client:
        client.create_topic("t", partitions=1)
        client.append_many("t", [*range(10)])
        client.trim_topic("t", partition=0, before=4)
        timer = threading.Timer(0.3, lambda: client.append("t", 10))
        with client.read("t", start=2, follow=True) as messages:
            assert [next(messages).data for _ in range(6)] == [*range(4, 10)]
            timer.start()
            assert next(messages).data == 10
        assert "messages before offset 4 are not kept" in caplog.text


def test_the_async_client_does_the_same(node: Node) -> None:
    async def go() -> None:
        async with AsyncClient("127.0.0.1", node.port) as client:
            await client.create_topic("t", partitions=2)
            await client.append("t", "a", partition=0)
            await client.append_many("t", [NewTopicMessage("b", key="x"), "c"], partition=1)
            assert sorted([one.data async for one in client.read("t")]) == ["a", "b", "c"]
            seen: list[Any] = []
            async with client.read("t", group="g", session=6) as messages:
                async for message in messages:
                    seen.append(message.data)
                    if len(seen) == 2:
                        break
            async with client.read("t", group="g", session=6) as messages:
                seen.append((await anext(messages)).data)
                waiting = asyncio.create_task(anext(messages))
                await asyncio.sleep(0.3)
                await client.append("t", "d", partition=0)
                seen.append((await waiting).data)
            assert sorted(seen) == ["a", "b", "c", "d"]
            assert (await client.group("t", "g")).lag == 0
            assert [row.name async for row in client.topics()] == ["t"]
            assert await client.trim_topic("t", before="latest") == 4
            await client.reset_group("t", "g", "earliest")
            await client.remove_group("t", "g")
            assert await client.remove_topic("t") == 0

    asyncio.run(asyncio.wait_for(go(), 30))


@pytest.mark.parametrize(
    "ask",
    [
        lambda client: client.read_part("t", 0, "first"),
        lambda client: client.read_part("t", 0, datetime(2026, 1, 1)),  # that is what is refused
        lambda client: client.read("t", group="g", partitions=[1]),
        lambda client: client.append_many("t", []),
        lambda client: next(client.read("t", partitions=[8])),
    ],
)
def test_what_can_not_be_asked_is_refused_at_once(node: Node, ask: Callable[[Client], Any]) -> None:
    with node.client() as client:
        client.create_topic("t")
        with pytest.raises(ValueError, match=r"neither|no time zone|partition|0 messages"):
            ask(client)
        for change in (client.create_topic, client.configure_topic):
            with pytest.raises(TypeError, match="'offset' is no setting of a topic: partitions, "):
                change("t", offset=3)  # type: ignore[call-arg]


class Leaders(TopicCalls):
    """A client whose requests fail as they do while leaders change; one message is there."""

    def __init__(self, *, heartbeats: Sequence[Exception] = (), commits: Sequence[Exception] = ()) -> None:
        self.failures = {"heartbeat": [*heartbeats], "commit": [*commits]}
        self.committed: list[dict[int, int]] = []

    def within(self, timeout: float) -> "Leaders":
        return self

    def request(self, action: int, **fields: Any) -> dict[str, Any]:
        if action == Action.READ:
            time.sleep(0.02)
            is_first = fields["offset"] == "earliest"
            one = {"offset": 0, "data": "x", "msg_id": 1, "produced_at": 1.0, "position": 0}
            return {"messages": [one] if is_first else [], "next": 1, "first": 0, "end": 1}
        what = "commit" if action == Action.COMMIT else "heartbeat"
        if fields.get("command") != "leave" and self.failures[what]:
            time.sleep(0.05)
            raise self.failures[what].pop(0)
        if action == Action.COMMIT:
            self.committed.append({int(index): at for index, at in fields["positions"].items()})
        time.sleep(0.05 if fields.get("wait") else 0)
        return {"owns": [0], "generation": 1, "positions": {}}

    def _do(self, ask: Ask[Any]) -> Any:
        return ask.read(self.request(ask.action, **(ask.fields or {})))

    _encoder = None


def test_a_reader_outlives_a_change_of_leader_and_what_it_did_is_committed() -> None:
    away = UnavailableError("no_leader", "nobody leads", {})
    unknown = RefusedError("unknown_member", "say a heartbeat", {})
    client = Leaders(heartbeats=[], commits=[unknown])
    with client.read("t", group="g", session=6) as messages:
        assert next(messages).data == "x"
        client.failures["heartbeat"] = [away, away]
        time.sleep(0.5)
        assert not client.failures["heartbeat"]
    assert client.committed[-1] == {0: 1}


def test_what_is_another_members_keeps_nothing_else_from_being_committed() -> None:
    client = Leaders(commits=[RefusedError("not_owner", "partition 1 is not yours", {})])
    reader = client.read("t", group="g", session=6)
    assert next(reader).data == "x"
    reader._places.has[1] = 1  # as if it had read there, too
    reader._places._done[1] = 7
    reader.close()
    assert client.committed == [{1: 7}, {0: 1}] or client.committed == [{0: 1}, {1: 7}]
