"""gmq's monitor: its four addresses before a real node, to the byte, and where its pages lead."""

import http.client
import json
import time
from functools import partial
from pathlib import Path

import pytest

from bench.go_rpc import Gmq
from console.gmq_monitor import bucket_of, go_duration, letters_of, local
from tests.cluster import wait_for
from tests.conftest import StartNode
from tests.console.conftest import Answer
from tests.faults.security import TOKENS, access_file
from tests.node import Node, free_port


def ask(port: int, path: str, method: str = "GET", **headers: str) -> Answer:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request(method, path, headers=headers)
        return Answer(connection.getresponse())
    finally:
        connection.close()


def shows(port: int, path: str, text: str) -> bool:
    return text in ask(port, path).text


def is_up(port: int) -> bool:
    try:
        return bool(ask(port, "/none").status)
    except OSError:
        return False


def with_monitor(start_node: StartNode, **config: object) -> tuple[Node, int, int]:
    """A node, and the ports of gmq's listener and of its monitor."""
    gmq, monitor = free_port(), free_port()
    listeners = [{"protocol": "gmq", "port": gmq}, {"protocol": "gmq-monitor", "port": monitor}]
    node = start_node(listeners=listeners, gmq_pop_wait_s=0.1, **config)
    wait_for(lambda: is_up(monitor), 15)
    return node, gmq, monitor


def test_where_there_is_nothing_data_are_null(start_node: StartNode) -> None:
    _, gmq, port = with_monitor(start_node)
    answer = ask(port, "/getReadyQueueStat")
    assert answer.body == b'{"code":0,"data":null,"msg":""}'
    assert answer.headers["content-type"] == "application/json; charset=utf-8"
    assert "access-control-allow-origin" not in answer.headers
    for key in ("gmq:bucket:0", "gmq:bucket:7", "gmq:bucket:TTR:A", "gmq:bucket:TTR:", "x"):
        assert ask(port, f"/getJobsByBucketKey?bucketKey={key}").body == b'{"code":0,"data":null,"msg":""}'
    missing = ask(port, "/getJobsByBucketKey?limit=5")
    assert (missing.status, missing.text) == (400, '{"code":1,"data":null,"msg":"bucketKey不能为空"}')
    bucket = json.loads(ask(port, "/getBucketStat").text)["data"][0]
    in_a_day = time.mktime(time.strptime(bucket["next_time"], "%Y-%m-%d %H:%M:%S")) - time.time()
    assert (bucket["id"], bucket["bucket_name"], bucket["job_num"]) == (1, "gmq:bucket:0", 0)
    assert abs(in_a_day - 86_400) < 10
    with Gmq(gmq) as client:
        client.push("later", "a", delay=600)
    for key in ("gmq:bucket:1", "gmq:bucket:7", "gmq:bucket:TTR:B"):
        assert ask(port, f"/getJobsByBucketKey?bucketKey={key}").body == b'{"code":0,"data":null,"msg":""}'
    assert json.loads(ask(port, "/getJobsByBucketKey?bucketKey=gmq:bucket:0").text)["data"][0]["id"] == "later"
    assert ask(port, "/home").status == 404, "there is no console"
    assert ask(port, "/getBucketStat", "POST").status in (403, 405)
    assert ask(port, "/nothing").status == 404


def test_counts_and_jobs_as_gmq_tells_them(start_node: StartNode) -> None:
    _, gmq, port = with_monitor(start_node)
    with Gmq(gmq) as client:
        client.push("r1", "b<topic>")
        client.push("r2", "a")
        client.push("r3", "a")
        for number in range(25):
            client.push(f"d{number}", f"dq{number % 3}", delay=600 - number, ttr=4)
        client.push("taken", "tq", ttr=30)
        client.pop("tq")
    ready = ask(port, "/getReadyQueueStat").text
    assert ready == (
        '{"code":0,"data":[{"id":1,"queue_name":"gmq:readyqueue:a","job_num":2},'
        '{"id":2,"queue_name":"gmq:readyqueue:b\\u003ctopic\\u003e","job_num":1}],"msg":""}'
    )
    found = json.loads(ask(port, "/getJobsByBucketKey?bucketKey=gmq:bucket:0").text)["data"]
    assert [one["id"] for one in found] == [f"d{24 - number}" for number in range(21)]
    first = found[0]
    assert list(first) == ["id", "job_key", "runtime", "ttr", "delay_time", "topic", "status"]
    assert (first["job_key"], first["ttr"], first["delay_time"], first["topic"]) == (
        "gmq:jobpool:d24",
        "4",
        "9m36s",
        "dq0",
    )
    assert first["status"] == '<span class="layui-badge layui-bg-orange">delay</span>'
    assert len(json.loads(ask(port, "/getJobsByBucketKey?bucketKey=gmq:bucket:0&limit=2").text)["data"]) == 3
    [delayed] = json.loads(ask(port, "/getBucketStat").text)["data"]
    assert (delayed["job_num"], delayed["next_time"]) == (25, first["runtime"])
    [reserved] = json.loads(ask(port, "/getTTRBucketStat").text)["data"]
    assert (reserved["bucket_name"], reserved["job_num"]) == ("gmq:bucket:TTR:A", 1)
    [taken] = json.loads(ask(port, "/getJobsByBucketKey?bucketKey=gmq:bucket:TTR:A").text)["data"]
    assert (taken["id"], taken["runtime"]) == ("taken", reserved["next_time"])
    assert "layui-bg-blue" in taken["status"]
    assert b'layui-bg-blue\\"\\u003ereserved' in ask(port, "/getJobsByBucketKey?bucketKey=gmq:bucket:TTR:A").body


def test_each_shard_is_a_bucket(start_node: StartNode) -> None:
    _, gmq, port = with_monitor(start_node, shards=2)
    with Gmq(gmq) as client:
        for number in range(12):
            client.push(f"d{number}", f"t{number}", delay=100 + number)
    wait_for(lambda: len(json.loads(ask(port, "/getBucketStat").text)["data"]) == 2, 10)
    rows = json.loads(ask(port, "/getBucketStat").text)["data"]
    assert [row["bucket_name"] for row in rows] == ["gmq:bucket:0", "gmq:bucket:1"]
    assert sum(row["job_num"] for row in rows) == 12
    found = [json.loads(ask(port, f"/getJobsByBucketKey?bucketKey={row['bucket_name']}").text)["data"] for row in rows]
    assert sorted(one["id"] for bucket in found for one in bucket) == sorted(f"d{number}" for number in range(12))
    assert all([one["runtime"] for one in bucket] == sorted(one["runtime"] for one in bucket) for bucket in found)


def test_its_pages_are_the_consoles(start_node: StartNode) -> None:
    console = free_port()
    _, gmq, port = with_monitor(start_node, http_listeners=[{"port": console, "serves": ["console", "gmq-monitor"]}])
    with Gmq(gmq) as client:
        client.push("<job>&1", "t", "hello")
    for path in ("/", "/home", "/bucketList", "/readyQueueList", "/bucketJobList"):
        answer = ask(port, path)
        assert answer.status == 302
        assert answer.headers["location"].startswith(f"http://127.0.0.1:{console}/")
        assert ask(console, answer.headers["location"].partition(str(console))[2]).status == 200
    with Gmq(gmq) as client:
        client.push("later", "t", "", delay=100)
        client.push("now", "popped", "", ttr=100)
        client.pop("popped")
    for bucket, job in (("gmq:bucket:0", "later"), ("gmq:bucket:TTR:A", "now")):
        shown = ask(port, f"/bucketJobList?bucketKey={bucket}").headers["location"].partition(str(console))[2]
        wait_for(partial(shows, console, shown, f">{job}<"), 5)  # what is shown may be a second old
    detail = ask(port, "/jobDetail?jobId=%3Cjob%3E%261").headers["location"]
    page = ask(console, detail.partition(str(console))[2])
    assert page.status == 200
    assert "hello" in page.text
    assert "<job>" not in page.text
    assert ask(console, "/").status == 200, "its own first page is the console's"
    assert ask(console, "/getReadyQueueStat").status == 200


def test_who_may_see_nothing_is_told_nothing(start_node: StartNode, tmp_path: Path) -> None:
    _, _, port = with_monitor(start_node, access_file=str(access_file(tmp_path, viewer=["look"])))
    assert ask(port, "/getReadyQueueStat").status == 403
    assert ask(port, "/getReadyQueueStat", Authorization=f"Bearer {TOKENS['viewer']}").status == 200


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0s"), (3, "3s"), (60, "1m0s"), (3600, "1h0m0s"), (172_992, "48h3m12s"), (-5, "-5s")]
)
def test_durations_are_gos(seconds: int, text: str) -> None:
    assert go_duration(seconds) == text


def test_buckets_have_letters() -> None:
    assert [letters_of(number) for number in (0, 1, 25, 26, 701, 702)] == ["A", "B", "Z", "AA", "ZZ", "AAA"]
    for number in range(1024):
        assert bucket_of(f"gmq:bucket:TTR:{letters_of(number)}") == (number, "in_flight")
        assert bucket_of(f"gmq:bucket:{number}") == (number, "delayed")
    assert local(253_402_300_799)[:5] in ("9999-", "10000")
    assert local(1e300) == "9999-12-31 23:59:59"
