"""The pages and metrics about topics, of a real console before a real node."""

import html
import re

import pytest

from tests.conftest import StartNode
from tests.console.conftest import Console, StartConsole
from tests.node import Node

HOSTILE = "<script>alert('x')</script>"


@pytest.fixture
def node(start_node: StartNode) -> Node:
    return start_node()


@pytest.fixture
def console(node: Node, start_console: StartConsole) -> Console:
    return start_console(node)


def words(answer: str) -> str:
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", answer)).split())


def test_topics_are_listed_and_shown_with_their_groups_and_messages(node: Node, console: Console) -> None:
    assert "There are no topics yet" in console.get("/topics").text
    with node.client() as client:
        client.create_topic("orders", partitions=2)
        client.append_many("orders", [{"n": n} for n in range(7)], partition=1)
        client.append("orders", HOSTILE, key=HOSTILE, headers={"h": HOSTILE}, partition=1)
        client.commit_positions("orders", "billing", {1: 3})
        client.heartbeat("orders", "billing", "somebody")
    listed = words(console.get("/topics", pattern="ord*").text)
    assert re.search(r"orders 2 8 \d+ B 1 5 ", listed)
    assert "No topic's name matches" in words(console.get("/topics", pattern="nothing").text)
    topic = words(console.get("/topic", name="orders", group="billing").text)
    assert "where billing is" in topic
    assert re.search(r"1 0 8 8 .* 3 5 somebody", topic)
    page = console.get("/topic", name="orders", partition=1, offset=7)
    assert HOSTILE not in page.text
    assert HOSTILE in words(page.text.replace("&lt;", "«").replace("&gt;", "»")).replace("«", "<").replace("»", ">")
    assert '"n":3' in words(console.get("/topic", name="orders", partition=1, offset=3).text).replace(" ", "")
    assert "no message at offset 8 yet" in words(console.get("/topic", name="orders", partition=1, offset=8).text)
    with node.client() as client:
        client.trim_topic("orders", partition=1, before=4)
    assert "not kept any more" in words(console.get("/topic", name="orders", partition=1, offset=3).text)
    assert "has 2, from 0 on" in words(console.get("/topic", name="orders", partition=9, offset=3).text)
    for asked in ({"name": "none"}, {"name": "orders", "group": "none"}):
        assert console.get("/topic", **asked).status == 404
    assert console.get("/topic", name="orders", partition="x", offset=0).status == 400


def test_metrics_tell_of_topics_and_how_far_groups_are_behind(node: Node, console: Console) -> None:
    with node.client() as client:
        client.create_topic("orders", partitions=2)
        client.append_many("orders", [*range(7)], partition=1)
        client.trim_topic("orders", partition=1, before=2)
        client.commit_positions("orders", "billing", {1: 3})
        client.create_topic("other", partitions=1)
    told = console.get("/metrics/topics").text
    for line in (
        'quorate_topic_messages{topic="orders"} 5.0',
        'quorate_topic_appended_total{topic="orders"} 7.0',
        'quorate_topic_partitions{topic="other"} 1.0',
        'quorate_group_lag_messages{group="billing",topic="orders"} 4.0',
        'quorate_group_members{group="billing",topic="orders"} 0.0',
        "quorate_topics_left_out 0.0",
        "quorate_shards_missing 0.0",
    ):
        assert line in told, line
    assert "quorate_group_lag_seconds{" in told
    assert "orders" not in console.get("/metrics/topics", pattern="oth*").text


def test_partitions_are_closed_and_opened_and_groups_skip_to_the_end(node: Node, console: Console) -> None:
    with node.client() as client:
        client.create_topic("orders", partitions=2)
        client.append_many("orders", [*range(7)], partition=1)
        client.commit_positions("orders", "billing", {1: 3})
        page = console.get("/topic", name="orders").text
        assert "act=close" in page
        assert "act=skip" in page
        asked = words(console.get("/act", act="close", topic="orders", partition=1).text)
        assert "Nothing more is appended to partition 1 of the topic orders" in asked
        assert client.topic("orders").closed == []
        assert "It is closed" in console.post("/act", act="close", topic="orders", partition=1).text
        assert client.topic("orders").closed == [1]
        assert "act=open" in console.get("/topic", name="orders").text
        assert "It is open" in console.post("/act", act="open", topic="orders", partition=1).text
        assert client.topic("orders").closed == []
        assert "passes over all" in words(console.get("/act", act="skip", topic="orders", group="billing").text)
        assert "at the end of" in console.post("/act", act="skip", topic="orders", group="billing").text
        assert client.group("orders", "billing").lag == 0
        for wrong in (
            {"act": "close", "topic": "orders", "partition": "x"},
            {"act": "skip", "topic": "no", "group": "g"},
        ):
            assert console.post("/act", **wrong).status == 409
