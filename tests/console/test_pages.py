"""Pages of a real console before a real node: what they show, what they do, and what they refuse."""

import html
import http.client
import json
import re
import socket
import ssl
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_families
from prometheus_client.parser import text_string_to_metric_families

from console.server import CONNECTIONS_MAX
from quorate import Client, RefusedError
from tests.cluster import wait_for
from tests.conftest import StartNode
from tests.console.conftest import Console, StartConsole, told
from tests.faults.security import TOKENS, Authority, access_file, reloaded
from tests.node import Node

HOSTILE = "<script>alert('x')</script>"


def in_table(answer: str) -> str:
    return html.unescape(re.sub(r"<[^>]+>", " ", answer))


@pytest.fixture
def node(start_node: StartNode) -> Node:
    return start_node()


@pytest.fixture
def console(node: Node, start_console: StartConsole) -> Console:
    return start_console(node)


def filled(client: Client) -> list[int]:
    """A queue with messages in each state, and dead letters."""
    client.configure("mail", dead_letter="mail.dead")
    client.produce_many("mail", [{"n": n} for n in range(30)], headers={"trace": "abc"})
    messages = client.consume_many("mail", 10)
    client.bury(messages[:3], "no such user")
    client.confirm(messages[3:5])
    client.produce("mail", "later", delay=600, key="later")
    return [message.msg_id for message in messages]


def test_each_page_says_what_the_node_says(node: Node, console: Console) -> None:
    with node.client() as client:
        ids = filled(client)
    overview = in_table(console.get("/").text)
    assert re.search(r"Ready\s+23\s", overview)
    assert re.search(r"In flight\s+5\s", overview)
    queues = in_table(console.get("/queues", sort="ready", down=1).text)
    assert queues.index("mail ") < queues.index("mail.dead")
    queue = console.get("/queue", name="mail", state="in_flight").text
    assert queue.count('name="id"') == 5
    dead = in_table(console.get("/dead").text)
    assert re.search(r"no such user\s+3", dead)
    life = in_table(console.get("/message", id=ids[0]).text)
    for word in ("produce", "deliver", "bury", "no such user", "trace", "abc", "Move back to mail"):
        assert word in life, word
    with node.client() as client:
        assert client.move("mail.dead").moved == 3
    again = in_table(console.get("/message", id=ids[0]).text)
    assert [word for word in again.split() if word in ("produce", "deliver", "bury", "move")][-4:] == [
        *("produce", "deliver", "bury", "move"),
    ]
    gone = in_table(console.get("/message", id=ids[4]).text)
    assert "not there any more" in gone
    assert "confirm" in gone
    assert "later" in console.get("/message", queue="mail", key="later").text


def test_what_is_due_next_is_told_of_all_queues_in_the_order_of_its_time(node: Node, console: Console) -> None:
    with node.client() as client:
        for number in range(30):
            client.produce(f"due.{number % 7}", number, delay=1000 + number * 37 % 30, key=f"key-{number}")
        client.produce("many", 1)
        for _ in range(3):
            client.produce("most", 1, retry=50)
        assert client.consume("most") is not None
    page = console.get("/due").text
    keys = [int(key) for key in re.findall(r">key-(\d+)<", page)]
    assert keys == sorted(range(30), key=lambda number: number * 37 % 30)[:20]
    [more] = re.findall(r'href="(/due\?[^"]*count=40)"', page)
    assert len(re.findall(r">key-\d+<", console.get(html.unescape(more)).text)) == 30
    assert "count=" not in console.get(html.unescape(more)).text, "there are no more"
    assert ">most<" in console.get("/due", state="in_flight").text
    assert console.get("/due", state="ready").status == 400
    overview = console.get("/").text
    assert re.search(r"next due in 16 m", overview)
    assert re.search(r"next back in (50|49) s", overview)
    assert [float(width) for width in re.findall(r'<rect width="([\d.]+)"', overview)] == [100.0, 50.0]
    assert [float(width) for width in re.findall(r'<rect width="([\d.]+)"', console.get("/queues").text)][-2:] == [
        50,
        100,
    ]


def test_actions_ask_first_say_what_came_of_it_and_a_get_changes_nothing(node: Node, console: Console) -> None:
    with node.client() as client:
        ids = filled(client)
        for act in ("pause", "clear", "remove", "move", "produce", "confirm"):
            assert console.get("/act", act=act, queue="mail", id=ids[5]).status == 200
        assert client.monitor("mail")["size"] == 26
        assert "are due now" in console.post("/act", act="release", queue="mail", id=ids[5]).text
        assert client.show(ids[5]).state == "ready"
        assert "3 moved to where they came from" in console.post("/act", act="move", queue="mail.dead").text
        assert client.monitor("mail.dead")["size"] == 0
        answer = console.post("/act", act="clear", queue="mail", typed="male")
        assert answer.status == 400
        assert client.monitor("mail")["size"] == 29
        assert console.post("/act", act="pause", queue="mail").status == 200
        assert client.monitor("mail")["paused"]
        assert console.post("/act", act="configure", queue="mail", max_size="40", dead_letter="").status == 200
        settings = client.settings("mail")
        assert (settings.max_size, settings.dead_letter) == (40, None)
        assert "a number is wanted" in in_table(console.post("/act", act="configure", queue="mail", max_size="x").text)
        assert "It was refused" in console.post("/act", act="bury", queue="mail", id=ids[6]).text
        produced = console.post("/act", act="produce", queue="new", data='{"a": 1}', as_json=1, key="k").text
        assert client.show(queue="new", key="k").data == {"a": 1}
        assert "It is message" in produced
        for text in ("inf", "nan", "1e999", "x"):
            assert console.post("/act", act="produce", queue="new", data="x", priority=text).status == 409, text
        assert console.get("/act", act="move", queue="mail", chosen=1).status == 400, "nothing was chosen"
        assert "is no JSON" in in_table(console.post("/act", act="produce", queue="new", data="{", as_json=1).text)
        half = console.post("/act", act="confirm", queue="mail", id=[ids[7], 1])
        assert half.status == 409
        assert "1 of 2 messages" in half.text
        assert "with 28 messages" in console.post("/act", act="remove", queue="mail", typed="mail").text
        assert client.queues("mail") == ["mail.dead"]


def test_what_clients_wrote_is_text_on_every_page(node: Node, console: Console) -> None:
    with node.client() as client:
        client.configure(HOSTILE, dead_letter=f"{HOSTILE}.dead")
        msg_id = client.produce(HOSTILE, HOSTILE, key=HOSTILE, headers={HOSTILE: HOSTILE})
        other = client.produce(HOSTILE, {HOSTILE: [HOSTILE]})
        message = client.consume(HOSTILE)
        assert message is not None
        message.bury(HOSTILE)
    pages = ["/", "/queues", "/dead", f"/message?id={msg_id}", f"/message?id={other}"]
    texts = [console.ask("GET", page).text for page in pages]
    texts += [console.get("/queue", name=HOSTILE).text, console.get("/queue", name=f"{HOSTILE}.dead").text]
    texts += [
        console.get("/act", act="move", queue=HOSTILE, to=HOSTILE).text,
        console.get("/queues", pattern=HOSTILE).text,
    ]
    texts += [console.get("/queue", name=f"{HOSTILE}none").text, console.get("/queues", sort=HOSTILE).text]
    for text in texts:
        assert "<script>alert" not in text
        assert "&lt;script&gt;" in text
    data = console.get("/message/data", id=other)
    assert json.loads(data.body) == {HOSTILE: [HOSTILE]}
    assert data.headers["content-disposition"].startswith("attachment")
    assert data.headers["content-type"] == "application/octet-stream"


NOT_THERE = {
    "/none": 404,
    "/queue?name=none": 404,
    "/queue?name=": 400,
    "/queue?name=none&state=x": 400,
    "/queues?sort=ready&after=x": 400,
    "/queues?sort=x": 400,
    "/message?id=x": 400,
    "/message?id=99999999999999999999": 400,
    "/message?id=1024000": 404,
    "/message?id=1": 404,
    "/message?queue=q&key=k": 404,
    "/act?act=none": 404,
    "/static/../server.py": 404,
    "/static/console.py": 404,
}


def test_what_is_not_there_is_said(console: Console) -> None:
    for path, status in NOT_THERE.items():
        answer = console.ask("GET", path)
        assert answer.status == status, path
        assert "Traceback" not in answer.text


def test_another_sites_page_can_do_nothing(node: Node, console: Console) -> None:
    form = b"act=produce&queue=q&data=x"
    kind = {"Content_Type": "application/x-www-form-urlencoded"}
    foreign = [
        {},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": console.origin, "Sec_Fetch_Site": "cross-site"},
        {"Origin": console.origin, "Sec_Fetch_Site": "same-site"},
        {"Origin": "http://evil.example", "Sec_Fetch_Site": "same-origin"},
    ]
    for headers in foreign:
        answer = console.ask("POST", "/act", form, **kind, **headers)
        assert answer.status == 403, headers
    for host in ("evil.example", f"evil.example:{console.port}", "127.0.0.1.evil.example", ""):
        assert console.ask("GET", "/", Host=host).status in (400, 421), host
    for method in ("PUT", "DELETE", "OPTIONS", "TRACE"):
        assert console.ask(method, "/").status in (400, 405), method
    with node.client() as client:
        assert client.queues() == []
    assert console.ask("POST", "/act", form, **kind, Origin=console.origin).status == 200, (
        "a browser without the header"
    )


def test_every_answer_has_its_headers(console: Console) -> None:
    for path in ("/", "/none", "/metrics", "/static/console.js", "/healthz"):
        headers = console.ask("GET", path).headers
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert (headers["x-content-type-options"], headers["referrer-policy"]) == ("nosniff", "same-origin")
        assert headers["cache-control"] == "no-store" or path.startswith("/static")
    assert "server" not in console.ask("GET", "/").headers


def test_what_is_no_form_or_too_long_is_refused(console: Console) -> None:
    own = {"Origin": console.origin, "Sec_Fetch_Site": "same-origin"}
    kind = {"Content_Type": "application/x-www-form-urlencoded"}
    assert console.ask("POST", "/act", b"{}", **own, Content_Type="application/json").status == 400
    assert console.ask("POST", "/act", b"\xff=%", **own, **kind).status == 400
    assert console.ask("POST", "/act", b"a=" + b"x" * 70_000, **own, **kind).status == 413
    assert console.ask("GET", "/queues?pattern=" + "x" * 20_000).status == 400
    assert console.ask("POST", "/act", b"a=1&" * 3000, **own, **kind).status == 400


def test_a_token_logs_in_with_its_own_rights_and_logging_out_ends_it(
    start_node: StartNode, start_console: StartConsole, tmp_path: Path
) -> None:
    path = access_file(tmp_path, worker=["look", "produce:a*", "consume:a*"])
    node = start_node(access_file=str(path))
    token = TOKENS["worker"]
    console = start_console(node)
    assert console.get("/").status == 303
    assert console.get("/queues").headers["location"] == "/login?back=%2Fqueues"
    assert console.log_in("worker.wrong").status == 403
    assert console.log_in("").status == 403
    answer = console.log_in(token)
    assert (answer.status, answer.headers["location"]) == (303, "/queues")
    for word in ("HttpOnly", "SameSite=strict", "Max-Age=43200"):
        assert word in answer.headers["set-cookie"]
    assert console.get("/queues").status == 200
    assert "Log out" in console.get("/queues").text
    assert console.post("/act", act="produce", queue="a.in", data="x").status == 200
    assert console.post("/act", act="produce", queue="b", data="x").status == 409
    deep = console.post("/act", act="produce", queue="a.in", data="[" * 3000, as_json="1")
    assert deep.status == 409
    assert "data is no JSON" in deep.text
    cookie, console.cookie = console.cookie, None
    for data in ("[" * 3000, "x"):
        answer = console.post("/act", act="produce", queue="a.in", data=data, as_json="1")
        assert (answer.status, answer.headers["location"]) == (303, "/login?back=%2Fact"), "it is not even read"
    console.cookie = cookie
    assert "a.in" in console.get("/queues").text
    msg_id = re.search(r"message (\d+)", console.post("/act", act="produce", queue="a.in", data="y").text)
    assert msg_id is not None
    assert "which you may not read" in in_table(console.get("/message", id=msg_id[1]).text)
    before = console.cookie
    assert console.log_in(token).status == 303
    cookie, console.cookie = console.cookie, before
    assert console.get("/queues").status == 303, "who logs in again leaves no session behind"
    console.cookie = cookie
    other = start_console(node)
    other.cookie = cookie
    assert other.get("/queues").status == 303, "a cookie is of one console"
    assert console.post("/logout").status == 303
    assert console.cookie == cookie
    assert console.get("/queues").status == 303, "it is over, though the browser still has it"
    assert console.ask("GET", "/metrics").status == 401
    assert console.ask("GET", "/metrics", Authorization="Bearer worker.wrong").status == 401
    wait_for(lambda: console.ask("GET", "/metrics", Authorization=f"Bearer {token}").status == 200)
    for _ in range(4):
        console.ask("GET", "/metrics", Authorization="Bearer worker.wrong")
    assert console.ask("GET", "/metrics", Authorization="Bearer worker.other").status == 429
    assert console.ask("GET", "/metrics", Authorization=f"Bearer {token}").status == 200, "it is known by now"
    assert console.ask("GET", "/healthz").status == console.ask("GET", "/readyz").status == 200


def test_metrics_are_what_was_done_in_both_formats(node: Node, console: Console) -> None:
    with node.client() as client:
        filled(client)
        with pytest.raises(RefusedError):
            client.clear("none")
    plain = console.get("/metrics").text
    found = {
        told(sample): sample.value for family in text_string_to_metric_families(plain) for sample in family.samples
    }
    wanted = {
        ("quorate_messages", "0", "ready"): 23,
        ("quorate_messages", "0", "in_flight"): 5,
        ("quorate_messages", "0", "delayed"): 1,
        ("quorate_messages_produced_total", "0"): 31,
        ("quorate_messages_delivered_total", "0"): 10,
        ("quorate_messages_confirmed_total", "0"): 2,
        ("quorate_messages_buried_total", "0"): 3,
        ("quorate_dead_letters", "0"): 3,
        ("quorate_queues", "0"): 2,
        ("quorate_leader", "0"): 1,
        ("quorate_disk_full", "0"): 0,
        ("quorate_elections_total", "0"): 1,
        ("quorate_requests_total", "produce", "ok", "0"): 2,
        ("quorate_requests_total", "clear", "no_such_queue", "0"): 1,
        ("quorate_requests_total", "bury", "ok", "0"): 1,
        ("quorate_request_seconds_count", "produce", "0"): 2,
        ("quorate_request_seconds_bucket", "produce", "+Inf", "0"): 2,
    }
    assert wanted.items() <= found.items()
    assert found["quorate_log_records", "0"] > 30
    assert found["quorate_entry_records_sum", "0"] == found["quorate_committed_records", "0"]
    for name in ("commit", "journal_write"):
        assert found[f"quorate_{name}_seconds_count", "0"] > 3
        assert 0 < found[f"quorate_{name}_seconds_sum", "0"] < 5
    assert 0 < found["quorate_cpu_seconds_total", "0"] < 60
    assert found["quorate_open_descriptors", "0"] > 5
    answer = console.ask("GET", "/metrics", Accept="application/openmetrics-text; version=1.0.0")
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    assert len(list(open_families(answer.text))) > 15
    queues = console.get("/metrics/queues", pattern="mail.*").text
    assert 'queue="mail.dead",state="ready"} 3.0' in queues
    assert 'queue="mail"' not in queues
    assert "quorate_queues_left_out 0.0" in queues


def test_a_node_that_is_away_is_said_and_the_page_goes_on_when_it_is_back(node: Node, console: Console) -> None:
    assert console.get("/healthz").text == console.get("/readyz").text == "ok\n"
    node.kill()
    wait_for(lambda: console.get("/").status == 503, 20)
    assert "tries again by itself" in console.get("/").text
    assert console.get("/healthz").status == console.get("/readyz").status == 503
    node.start()
    wait_for(lambda: console.get("/").status == 200, 20)
    assert console.get("/readyz").status == 200


def test_slow_and_silent_clients_do_not_stay(console: Console) -> None:
    with socket.create_connection(("127.0.0.1", console.port)) as silent:
        silent.sendall(b"GET / HTTP/1.1\r\nHost: 127")
        silent.settimeout(20)
        begun = time.monotonic()
        assert silent.recv(1000) == b""
        assert 5 < time.monotonic() - begun < 15
    assert console.get("/").status == 200


def test_half_requests_on_kept_connections_are_closed_and_hold_up_nobody(console: Console) -> None:
    """As many as there may be, each after a whole request: the page is there for others, and they go in time."""
    kept = [socket.create_connection(("127.0.0.1", console.port)) for _ in range(CONNECTIONS_MAX + 10)]
    try:
        for one in kept:
            one.sendall(f"GET /static/icon.svg HTTP/1.1\r\nHost: 127.0.0.1:{console.port}\r\n\r\n".encode())
        for one in kept:
            with suppress(ConnectionError):
                one.recv(100_000)
                one.sendall(b"GET / HTTP/1.1\r\nHost: 127")
        assert console.get("/").status == 200
        begun = time.monotonic()
        for one in kept:
            one.settimeout(20)
            with suppress(ConnectionError):
                while one.recv(100_000):
                    pass
        assert time.monotonic() < begun + 15
    finally:
        for one in kept:
            one.close()


def test_log_ins_that_fail_wait_beside_all_others_and_are_not_many(
    start_node: StartNode, start_console: StartConsole, tmp_path: Path
) -> None:
    node = start_node(access_file=str(access_file(tmp_path, worker=["look"])))
    console = start_console(node)
    assert console.log_in(TOKENS["worker"]).status == 303
    with ThreadPoolExecutor(40) as threads:
        guesses = [threads.submit(console.post, "/login", token=f"worker.{n}") for n in range(40)]
        time.sleep(0.3)
        begun = time.monotonic()
        for _ in range(3):
            assert console.get("/queues").status == 200
        assert time.monotonic() < begun + 2, "who is logged in does not wait for them"
        statuses = Counter(one.result().status for one in guesses)
    assert statuses.keys() <= {403, 429}
    assert statuses[429] > 20


def test_two_consoles_on_one_host_have_cookies_of_their_own(
    start_node: StartNode, start_console: StartConsole, tmp_path: Path
) -> None:
    node = start_node(access_file=str(access_file(tmp_path, worker=["look"])))
    names = set()
    for console in (start_console(node), start_console(node)):
        names.add(console.log_in(TOKENS["worker"]).headers["set-cookie"].partition("=")[0])
        assert console.ask("GET", "/queues", Cookie="; ".join(f"{name}=x" for name in names)).status == 303
    assert len(names) == 2


def test_ids_that_there_can_not_be_are_not_there(console: Console) -> None:
    assert console.get("/message", id=1024 * 9 + 77).status == 404


def slow(console: Console, count: int, text: str, room: int = 0) -> list[socket.socket]:
    """So many who send that, and then neither send nor read."""
    found = []
    for _ in range(count):
        one = socket.socket()
        if room:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, room)
        one.connect(("127.0.0.1", console.port))
        with suppress(ConnectionError):
            one.sendall(text.encode())
        found.append(one)
    return found


@pytest.mark.parametrize("kind", ["unread", "bodies"])
def test_who_neither_sends_nor_reads_shuts_out_nobody(console: Console, kind: str) -> None:
    """As many as there may be, and more: health and pages are there for others all the time."""
    head = f"Host: 127.0.0.1:{console.port}\r\nOrigin: {console.origin}\r\n"
    form = "Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 100\r\n"
    if kind == "unread":
        many = slow(console, CONNECTIONS_MAX + 6, f"GET /static/uPlot.iife.min.js HTTP/1.1\r\n{head}\r\n" * 50, 4096)
    else:
        many = slow(console, CONNECTIONS_MAX // 2, f"POST /act HTTP/1.1\r\n{head}{form}\r\na=1")
        many += slow(console, CONNECTIONS_MAX // 2 + 6, f"POST /login HTTP/1.1\r\n{head}{form}\r\na=1")
    try:
        time.sleep(0.5)
        for path in ("/healthz", "/queues", "/static/console.css", "/readyz"):
            begun = time.monotonic()
            assert console.get(path).status == 200
            assert time.monotonic() < begun + 2, path
    finally:
        for one in many:
            one.close()
    assert console.get("/").status == 200


def test_an_accept_header_that_is_none_is_answered_with_text(console: Console) -> None:
    for accept in ("application/openmetrics-text; version=abc", "text/plain;version=\u00b2", "*/*;q=x", ""):
        answer = console.ask("GET", "/metrics", Accept=accept.encode("latin-1").decode("latin-1"))
        assert answer.status == 200, accept
        assert "quorate_leader" in answer.text


def test_a_token_for_some_queues_sees_nothing_of_the_others_dead_letters_or_of_all(
    start_node: StartNode, start_console: StartConsole, tmp_path: Path
) -> None:
    path = access_file(tmp_path, worker=["look:mail*"], operator=["produce", "consume", "look", "manage"])
    node = start_node(access_file=str(path))
    with Client(port=node.port, token=TOKENS["operator"]) as client:
        client.configure("mail", dead_letter="secret.dead")
        client.configure("mail.own", dead_letter="mail.dead")
        for queue in ("mail", "mail.own"):
            client.produce(queue, 1)
            message = client.consume(queue)
            assert message is not None
            message.bury("reason-of-it")
    console = start_console(node)
    assert console.log_in(TOKENS["worker"]).status == 303
    rows = in_table(console.get("/queues").text)
    assert "mail.own" in rows
    assert "secret" not in rows
    assert console.get("/samples").text == "[]"
    assert "some queues only" in in_table(console.get("/").text)
    dead = console.get("/dead")
    assert dead.status == 200
    assert "mail.dead" in dead.text
    assert "secret" not in dead.text
    assert console.ask("GET", "/metrics", Authorization=f"Bearer {TOKENS['worker']}").status == 401


def test_data_that_are_deep_and_long_hold_up_nobody(node: Node, console: Console) -> None:
    with node.client() as client:
        deep: object = [1] * 300_000
        for _ in range(25):
            deep = [deep]
        msg_id = client.produce("q", deep)
    begun = time.monotonic()
    assert console.get("/message", id=msg_id).status == 200
    assert time.monotonic() < begun + 1


def test_by_tls_cookies_are_secure_and_a_handshake_ends_in_time(
    start_node: StartNode, start_console: StartConsole, tmp_path: Path
) -> None:
    authority = Authority(tmp_path / "authority")
    node = start_node(access_file=str(access_file(tmp_path, worker=["look"])))
    console = start_console(node, "--cert", authority.issue("127.0.0.1"))
    context = ssl.create_default_context(cafile=authority.ca)
    client = http.client.HTTPSConnection("127.0.0.1", console.port, context=context, timeout=10)
    form = {"Content-Type": "application/x-www-form-urlencoded", "Sec-Fetch-Site": "same-origin"}
    form["Origin"] = f"https://127.0.0.1:{console.port}"
    client.request("POST", "/login", f"token={TOKENS['worker']}", form)
    reply = client.getresponse()
    reply.read()
    cookie = str(reply.headers["set-cookie"])
    assert cookie.startswith(f"__Host-quorate_console_{console.port}=")
    assert {"Secure", "Path=/", "HttpOnly"} <= set(cookie.split("; "))
    client.request("GET", "/", headers={"Cookie": cookie.partition(";")[0]})
    assert client.getresponse().status == 200
    client.close()
    with socket.create_connection(("127.0.0.1", console.port), timeout=20) as silent:
        begun = time.monotonic()
        assert silent.recv(100) == b""
        assert time.monotonic() < begun + 15


def test_a_proxy_may_speak_tls_with_the_browser(
    start_node: StartNode, start_console: StartConsole, tmp_path: Path
) -> None:
    node = start_node(access_file=str(access_file(tmp_path, worker=["look"])))
    console = start_console(node, "--http-hosts", "queue.example")
    form = {"Content_Type": "application/x-www-form-urlencoded", "Sec_Fetch_Site": "same-origin"}
    token = f"token={TOKENS['worker']}".encode()
    answer = console.ask("POST", "/login", token, Host="queue.example", Origin="https://queue.example", **form)
    assert answer.status == 303
    assert "Secure" in answer.headers["set-cookie"]
    for origin in ("https://other.example", "https://queue.example.evil", "http://["):
        refused = console.ask("POST", "/login", token, Host="queue.example", Origin=origin, **form)
        assert refused.status in (400, 403), origin


def test_a_bearer_that_is_nobodys_any_more_is_told_so_and_a_pattern_that_is_none(
    start_node: StartNode, start_console: StartConsole, tmp_path: Path
) -> None:
    path = access_file(tmp_path, worker=["look"])
    node = start_node(access_file=str(path))
    console = start_console(node)
    bearer = {"Authorization": f"Bearer {TOKENS['worker']}"}
    assert console.ask("GET", "/metrics", b"", **bearer).status == 200
    assert console.ask("GET", "/metrics/queues?pattern=%00", b"", **bearer).status == 400
    access_file(tmp_path, viewer=["look"])
    reloaded(node)
    wait_for(lambda: console.ask("GET", "/metrics", b"", **bearer).status in (401, 429))


def test_what_was_done_is_seen_at_once(node: Node, console: Console) -> None:
    for n in range(5):
        console.get("/queues")
        assert console.post("/act", act="produce", queue=f"q{n}", data="x").status == 200
        assert f"q{n}" in console.get("/queues").text


def test_a_message_is_found_by_its_key_with_its_whole_life_also_when_it_is_gone(node: Node, console: Console) -> None:
    with node.client() as client:
        msg_id = client.produce("jobs", "first", key="4711", scope="all", delay=None)
        page = in_table(console.get("/message?find=4711").text)
        assert f"Message {msg_id}" in page
        assert "It is ready in" in page
        message = client.consume("jobs")
        assert message is not None
        message.release()
        again = client.consume("jobs")
        assert again is not None
        client.confirm(again)
        for _ in range(2):
            client.produce_many("other", list(range(700)))  # more than one piece of the log
        page = in_table(console.get("/message?key=4711").text)
        assert "It is not there any more" in page
        kinds = re.findall(r"\b(produce|deliver|release|confirm)\b", page)
        assert kinds == ["produce", "deliver", "release", "deliver", "confirm"]
        later = client.produce("jobs", "again", key="4711", scope="all")
        assert f"Message {later}" in in_table(console.get("/message?find=4711").text)
        assert f"Message {msg_id}" in in_table(console.get(f"/message?find={msg_id}").text)
    missing = console.get("/message?find=nobody")
    assert missing.status == 404
    assert "There is no message with the key" in in_table(missing.text)
    assert console.get("/message?find=%20").status == 400
    assert console.get("/message?find=" + "k" * 300).status in (400, 404)
