"""gmq's protocol on real nodes, over real sockets: each row of what it answers."""

import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.gmq import Killed
from bench.go_rpc import Gmq, GmqError
from bench.resp import Resp
from quorate import Key
from tests.cluster import Cluster, wait_for
from tests.conformance.disque import listening as disque_listening
from tests.conftest import StartNode
from tests.faults.security import access_file
from tests.node import Node, free_port

GONE = 'strconv.Atoi: parsing "": invalid syntax'


def listening(**more: Any) -> dict[str, Any]:
    """A listener's configuration."""
    return {"protocol": "gmq", "host": "127.0.0.1", "port": free_port(), **more}


def port_of(node: Node, index: int = 0) -> int:
    return int(node.config["listeners"][index]["port"])


@pytest.fixture
def gmq_node(start_node: StartNode) -> Node:
    """Whose Pops wait for a short time."""
    return start_node(listeners=[listening(), disque_listening()], gmq_pop_wait_s=0.2, gmq_ttr_grace_s=0.5)


@pytest.fixture
def gmq(gmq_node: Node) -> Iterator[Gmq]:
    with Gmq(port_of(gmq_node)) as client:
        yield client


def fails(gmq: Gmq, method: str, *params: Any) -> str:
    with pytest.raises(GmqError) as raised:
        gmq.ask(method, *params)
    return str(raised.value)


def test_a_job_is_pushed_popped_and_acknowledged(gmq: Gmq) -> None:
    assert gmq.push("a1", "topic_3", "hello", ttr=4) == "success"
    told = {"TTR": "4", "body": "hello", "consume_num": "0", "delay": "0", "id": "a1", "status": "3"}
    assert gmq.pop("other", "topic_3") == {**told, "topic": "topic_3"}
    assert gmq.acknowledge("a1") is True
    assert fails(gmq, "Ack", "a1") == GONE
    assert gmq.push("a1", "topic_3", "again") == "success"


def test_an_id_is_one_in_all_topics_and_the_first_job_stays(gmq: Gmq) -> None:
    gmq.push("a", "t", "first", ttr=9)
    exists = "jobKey:gmq:jobpool:a,error:has exist"
    assert gmq.push("a", "t", "second") == exists
    assert gmq.push("a", "u", "third", delay=5) == exists
    assert gmq.pop("t")["body"] == "first"
    assert gmq.push("a", "u", "fourth") == exists
    assert gmq.acknowledge("a") is True
    assert gmq.push("a", "u", "fifth") == "success"


def test_the_answers_to_an_ack_are_by_the_state_of_the_job(gmq: Gmq) -> None:
    assert fails(gmq, "Ack", "unknown") == GONE
    gmq.push("late", "t", delay=60, ttr=5)
    assert fails(gmq, "Ack", "late") == "Unknown error"
    gmq.push("ready", "t", ttr=1)
    assert fails(gmq, "Ack", "ready") == "Job is not be reserved"
    assert gmq.pop("t")["id"] == "ready"
    time.sleep(1.7)
    assert fails(gmq, "Ack", "ready") == "TTR has expired and will be consumed again"
    again = gmq.pop("t")
    assert (again["id"], again["consume_num"]) == ("ready", "1")
    assert gmq.acknowledge("ready") is True
    gmq.push("once", "t")
    assert gmq.pop("t")["consume_num"] == "0"
    assert fails(gmq, "Ack", "once") == GONE


def test_a_job_may_take_its_ttr_and_the_grace_and_stands_last_when_it_comes_back(gmq: Gmq) -> None:
    gmq.push("slow", "t", ttr=1)
    gmq.pop("t")
    gmq.push("next", "t", ttr=9)
    time.sleep(1.2)
    assert gmq.acknowledge("slow") is True, "its TTR is over, the grace is not"
    gmq.push("back", "t", ttr=1)
    assert gmq.pop("t")["id"] == "next"
    assert gmq.pop("t")["id"] == "back"
    time.sleep(1.3)
    gmq.push("newer", "t")
    time.sleep(0.3)
    assert [gmq.pop("t")["id"] for _ in range(2)] == ["newer", "back"]


def test_a_delay_is_kept_and_told_also_after_a_redelivery_and_a_restart(gmq_node: Node, gmq: Gmq) -> None:
    begun = time.monotonic()
    gmq.push("d", "t", "x", delay="+1", ttr=1)
    assert fails(gmq, "Pop", ["t"]) == "empty"
    gmq_node.kill()
    gmq_node.start()
    with Gmq(port_of(gmq_node)) as after:
        while True:
            try:
                job = after.pop("t")
                break
            except GmqError:
                assert time.monotonic() < begun + 5
        assert time.monotonic() >= begun + 1
        assert (job["delay"], job["TTR"], job["consume_num"]) == ("1", "1", "0")
        time.sleep(1.7)
        again = after.pop("t")
        assert (again["delay"], again["TTR"], again["consume_num"]) == ("1", "1", "1")
        assert after.push("d", "t") == "jobKey:gmq:jobpool:d,error:has exist"


def test_a_pop_waits_and_is_served_in_the_order_of_coming_at_once(start_node: StartNode) -> None:
    node = start_node(listeners=[listening()])
    with Gmq(port_of(node)) as first, Gmq(port_of(node)) as second, Gmq(port_of(node)) as producer:
        begun = time.monotonic()
        assert fails(first, "Pop", ["none"]) == "empty"
        assert 1.9 < time.monotonic() - begun < 2.6
        first.begin("Pop", ["t"])
        time.sleep(0.1)
        second.begin("Pop", ["u", "t"])
        time.sleep(0.1)
        producer.push("1", "t")
        assert first.reply()["result"]["id"] == "1"
        producer.push("2", "t")
        assert second.reply()["result"]["id"] == "2"


def test_calls_of_one_connection_are_done_side_by_side(start_node: StartNode) -> None:
    node = start_node(listeners=[listening()])
    with Gmq(port_of(node)) as client:
        waiting = client.begin("Pop", ["t"])
        pushed = client.begin("Push", {"id": "a", "topic": "other"})
        assert client.reply()["id"] == pushed
        client.begin("Push", {"id": "b", "topic": "t"})
        replies = {said["id"]: said["result"] for said in (client.reply(), client.reply())}
        assert replies[waiting]["id"] == "b"


def test_what_is_open_is_answered_when_the_client_ends_its_side(gmq: Gmq) -> None:
    gmq.begin("Push", {"id": "a", "topic": "t"})
    gmq.begin("Ack", "nobody")
    gmq.end()
    assert {gmq.reply()["id"], gmq.reply()["id"]} == {0, 1}
    assert gmq.line() == b""


@pytest.mark.parametrize("data", [b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00", b"[1]", b'{"method":7}'])
def test_what_is_no_call_ends_the_connection_silently(gmq: Gmq, data: bytes) -> None:
    gmq.begin("Push", {"id": "a", "topic": "t"})
    gmq.send(data)
    assert gmq.reply()["result"] == "success"
    assert gmq.line() == b""


def test_a_call_that_is_too_large_or_too_slow_ends_the_connection_silently(start_node: StartNode) -> None:
    node = start_node(listeners=[listening()], request_timeout_s=0.5, max_request_bytes=100_000, max_data_bytes=10_000)
    with Gmq(port_of(node)) as client:
        with pytest.raises(GmqError, match="too_large: data: 20002 bytes"):
            client.push("a", "t", "x" * 20_000)
        client.send(b'{"method":"Service.Push","params":["' + b"x" * 200_000)
        assert client.line() == b""
    with Gmq(port_of(node)) as client:
        client.send(b'{"method":')
        assert client.line() == b""


def test_more_pops_than_a_connection_may_have_are_refused(start_node: StartNode) -> None:
    node = start_node(listeners=[listening()])
    with Gmq(port_of(node)) as client:
        for _ in range(65):
            client.begin("Pop", ["t"])
        assert client.reply()["error"].startswith("overloaded: 64 consumers of this connection wait already")
        assert {client.reply()["error"] for _ in range(64)} == {"empty"}


def test_one_of_fifty_pushes_of_one_id_succeeds(gmq_node: Node) -> None:
    said: list[str] = []

    def push(number: int) -> None:
        with Gmq(port_of(gmq_node)) as client:
            said.append(client.push("same", f"t{number % 3}"))

    threads = [threading.Thread(target=push, args=(number,)) for number in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(said) == ["jobKey:gmq:jobpool:same,error:has exist"] * 49 + ["success"]


def test_jobs_and_messages_of_other_protocols_are_each_others(gmq_node: Node, gmq: Gmq) -> None:
    with gmq_node.client() as client, Resp(port_of(gmq_node, 1)) as disque:
        gmq.push("a", "t", "grüße", ttr=7)
        message = client.consume("t")
        assert message is not None
        assert (message.data, message.deliveries) == ("grüße", 1)
        assert gmq.acknowledge("a") is True
        client.produce("t", "keyed", key="json", scope="all", retry=60)
        assert gmq.pop("t")["TTR"] == "60"
        assert gmq.acknowledge("json") is True
        plain = client.produce("t", {"n": 1}, retry=59.5)
        job = gmq.pop("t")
        assert (job["id"], job["TTR"], job["body"]) == (str(plain), "60", '{"n":1}')
        assert gmq.acknowledge(str(plain)) is True
        disque.ask("ADDJOB", "t", b"\xff\x00", 0)
        job = gmq.pop("t")
        assert job["body"] == "/wA="
        assert gmq.acknowledge(job["id"]) is True
        gmq.push("b", "t", "for disque")
        assert disque.line("GETJOB FROM t")[0][2] == b"for disque"


def test_what_never_expires_does_not_in_another_queue_either(gmq_node: Node, gmq: Gmq) -> None:
    with gmq_node.client() as client:
        client.configure("t", dead_letter="dead")
        gmq.push("a", "t", "x", ttr=4)
        message = client.consume("t")
        assert message is not None
        client.bury(message)
        assert gmq.push("a", "t") == "jobKey:gmq:jobpool:a,error:has exist"
        assert client.show(key="a").expires_at == 253_402_300_799
        assert gmq.pop("dead")["TTR"] == "4"
        client.release(Key("a"))
        client.move("dead")
        assert client.show(key="a").expires_at == 253_402_300_799
        assert client.confirm(Key("a")) == 1
        assert client.confirm(Key("a")) == 0


def test_an_ack_of_a_number_takes_no_other_job(gmq_node: Node, gmq: Gmq) -> None:
    gmq.push("job-x", "t", ttr=60)
    with gmq_node.client() as client:
        number = str(client.show(key="job-x").msg_id)
    assert gmq.pop("t")["id"] == "job-x"
    gmq.push(number, "u", ttr=60)
    gmq.pop("u")
    assert gmq.acknowledge(number) is True
    assert fails(gmq, "Ack", number) == GONE
    assert gmq.acknowledge("job-x") is True


def test_a_virtual_queue_takes_no_job(start_node: StartNode) -> None:
    node = start_node(listeners=[listening()], virtual_queue_list={"fan": ["a", "b"]})
    with Gmq(port_of(node)) as gmq:
        said = fails(gmq, "Push", {"id": "a", "topic": "fan"})
        assert said.startswith("not_supported: 'fan' is a virtual queue")
        assert gmq.push("a", "a") == "success"


def test_who_may_only_produce_and_consume_is_told_of_ids_in_all_shards(start_node: StartNode, tmp_path: Path) -> None:
    access = access_file(tmp_path, anonymous=["produce", "consume"])
    node = start_node(listeners=[listening()], shards=3, access_file=str(access))
    with Gmq(port_of(node)) as gmq:
        assert gmq.push("a", "t0") == "success"
        for number in range(1, 9):
            assert gmq.push("a", f"t{number}") == "jobKey:gmq:jobpool:a,error:has exist"


def test_a_topic_that_is_empty_and_unused_goes(start_node: StartNode) -> None:
    node = start_node(listeners=[listening()], idle_queue_s=0.5)
    with Gmq(port_of(node)) as gmq, node.client() as client:
        gmq.push("a", "short")
        gmq.pop("short")
        wait_for(lambda: not client.queues("short"), 10)


def test_nothing_expires_until_the_year_9999(gmq_node: Node, gmq: Gmq) -> None:
    gmq.push("a", "t", ttr=1)
    with gmq_node.client() as client:
        assert client.show(key="a").expires_at == 253_402_300_799


def test_kill_9_in_the_middle_of_pushes_pops_and_acks_loses_nothing(gmq_node: Node) -> None:
    def kill() -> None:
        gmq_node.kill()
        gmq_node.start()

    clients = Killed(port_of(gmq_node))
    assert not clients.run(3, kill)
    assert len(clients.acknowledged) > 20


def test_any_node_of_a_cluster_serves(tmp_path: Path) -> None:
    made = Cluster(tmp_path, 3, {})
    for one in made.nodes.values():
        one.config["listeners"] = [listening()]
    try:
        made.start()
        follower, third = made.followers()
        with Gmq(port_of(follower)) as producer, Gmq(port_of(third)) as consumer:
            assert producer.push("a", "t", "x", ttr=9) == "success"
            assert consumer.push("a", "u") == "jobKey:gmq:jobpool:a,error:has exist"
            assert consumer.pop("t")["id"] == "a"
            assert producer.acknowledge("a") is True
    finally:
        made.kill()


def test_an_id_is_known_in_all_shards(start_node: StartNode) -> None:
    node = start_node(listeners=[listening()], shards=3, gmq_pop_wait_s=0.1)
    topics = [f"t{number}" for number in range(8)]
    with Gmq(port_of(node)) as gmq, node.client() as client:
        for number, topic in enumerate(topics):
            assert gmq.push(f"j{number}", topic, ttr=9) == "success"
        for number, topic in enumerate(topics):
            assert gmq.push(f"j{number}", topics[(number + 1) % 8]) == f"jobKey:gmq:jobpool:j{number},error:has exist"
            assert client.show(key=f"j{number}").queue == topic
            assert fails(gmq, "Ack", f"j{number}") == "Job is not be reserved"
        got = {gmq.pop(*topics)["id"] for _ in topics}
        assert got == {f"j{number}" for number in range(8)}
        for job in got:
            assert gmq.acknowledge(job) is True
            assert fails(gmq, "Ack", job) == GONE
        assert fails(gmq, "Pop", topics) == "empty"


def test_the_bytes_of_a_reply_are_gos(gmq_node: Node) -> None:
    with socket.create_connection(("127.0.0.1", port_of(gmq_node)), 5) as raw:
        raw.sendall(
            b'{"method": "Service.Push", "params": [{"id": "a", "topic": "t", "body": "<\\u00fc&>", "delay": "0", '
            b'"TTR": "4"}], "id": "gmq5dd6a0c2b3f41"}'
        )
        assert raw.recv(1024) == b'{"id":"gmq5dd6a0c2b3f41","result":"success","error":null}\n'
        raw.sendall(b'{"method":"Service.Pop","params":[["t"]],"id":5}\n')
        assert raw.recv(1024) == (
            '{"id":5,"result":{"TTR":"4","body":"\\u003cü\\u0026\\u003e","consume_num":"0","delay":"0","id":"a",'
            '"status":"3","topic":"t"},"error":null}\n'.encode()
        )
