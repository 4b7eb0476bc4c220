"""qctl msg and queue as an operator uses them: files, consumers that go on, dead letters, a message's life."""

import json
import os
import random
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest

from tests.cli.test_qctl import QCTL, qctl
from tests.conftest import StartNode
from tests.node import Node


@pytest.fixture
def node(start_node: StartNode) -> Node:
    return start_node()


def begin(*words: object) -> subprocess.Popen[str]:
    """Start qctl; what it prints is read from it."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("QUORATE_")}
    return subprocess.Popen(
        [QCTL, *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )


def test_a_file_is_produced_line_by_line_though_the_node_is_killed(node: Node, tmp_path: Path) -> None:
    """All of it, in order; twice at most what was sent when the node went."""
    count = 100_000
    lines = [f"line {number}" for number in range(count)]
    (tmp_path / "lines").write_text("\n".join(lines) + "\n")
    sending = begin("msg", "produce", "big", "--from-file", tmp_path / "lines", "--port", node.port)
    for _ in range(2):
        with node.client() as client:
            before = client.monitor("big")["size"] if "big" in client.queues() else 0
            while sending.poll() is None and ("big" not in client.queues() or client.monitor("big")["size"] <= before):
                time.sleep(0.01)
        node.kill()
        node.start()
    out, said = sending.communicate(timeout=120)
    assert (sending.returncode, out) == (0, f"{count} lines are on disk\n"), said
    seen: list[str] = []
    with node.client() as client:
        while found := client.consume_many("big", 1000):
            seen += [one.data for one in found]
            client.confirm(found)
    assert set(seen) == set(lines), "nothing is lost"
    assert len(seen) - count <= 2000
    assert sorted(dict.fromkeys(seen), key=lambda line: int(line.split()[1])) == list(dict.fromkeys(seen))


def test_what_is_no_utf8_stays_bytes_and_a_file_may_be_json_or_begin_later(node: Node, tmp_path: Path) -> None:
    port = ("--port", node.port)
    (tmp_path / "raw").write_bytes(b"a\xff\r\nb\n\nlast")
    assert qctl("msg", "produce", "raw", "--from-file", tmp_path / "raw", *port) == "4 lines are on disk\n"
    with node.client() as client:
        assert [one.data for one in client.consume_many("raw", 9)] == [b"a\xff", "b", "", "last"]
    (tmp_path / "json").write_text('{"a": 1}\n[2]\n')
    said = qctl("msg", "produce", "json", "--from-file", tmp_path / "json", "--parse", "--skip", 1, *port)
    assert said == "1 lines are on disk\n"
    assert qctl("msg", "consume", "json", *port).endswith(" 1 [2]\n")
    (tmp_path / "bad").write_text("1\n{\n")
    assert "--parse: " in qctl("msg", "produce", "json", "--from-file", tmp_path / "bad", "--parse", *port, code=1)
    assert "is on disk" not in qctl("msg", "produce", "json", "x", "--from-file", "y", *port, code=1)
    assert "--key is for one" in qctl("msg", "produce", "q", "--from-file", "y", "--key", "k", *port, code=1)
    assert "No such file" in qctl("msg", "produce", "q", "--from-file", tmp_path / "none", *port, code=1)


CUTS = 12


def test_a_consumer_that_is_cut_off_loses_nothing_and_holds_nothing(node: Node) -> None:
    """By Ctrl-C, or its reader's end: what it has not printed is there for the next one at once."""
    draw = random.Random(7)
    count = 0
    with node.client() as client:
        read: list[int] = []
        for cut in range(CUTS):
            while "q" not in client.queues() or client.monitor("q")["size"] < 5000:
                client.produce_many("q", list(range(count, count + 1000)), retry=3600)
                count += 1000
            following = begin("msg", "consume", "q", "--follow", "--port", node.port)
            assert following.stdout is not None
            reader = threading.Thread(target=lambda its=following.stdout: read.extend(_numbers(its)))
            if cut % 2:
                read.extend(_numbers([following.stdout.readline()]))  # it has begun
                reader.start()
                time.sleep(draw.uniform(0.0, 0.4))
                following.send_signal(signal.SIGINT)
                reader.join(20)
            else:
                for _ in range(draw.randint(1, 40)):
                    read.extend(_numbers([following.stdout.readline()]))
                following.stdout.close()
            assert following.wait(20) == 0, following.stderr and following.stderr.read()
            assert following.stderr is not None
            assert following.stderr.read() == ""
            assert client.monitor("q")["in_flight"] == 0
            following.stderr.close()
            following.stdout.close()
        left = {one.data for one in client.browse("q", "ready")} | {one.data for one in client.browse("q", "delayed")}
    printed = count - len(left)
    assert len(set(read)) <= printed <= count, "what was printed into a pipe that nobody read to its end is confirmed"
    assert not left & set(read)


def _numbers(lines: object) -> list[int]:
    return [int(line.split()[2]) for line in lines if line.strip()]  # type: ignore[attr-defined]


def test_a_command_gets_the_data_and_its_end_says_what_becomes_of_the_message(node: Node) -> None:
    port = ("--port", node.port)
    with node.client() as client:
        client.produce_many("q", ["good", "bad", b"\xff\x00"], retry=1)
        command = 'data=$(od -An -c | tr -d " \\n"); printf "%s %s\\n" "$QUORATE_QUEUE" "$data"; '
        command += 'sleep 1.5; test "$data" != bad'
        said = qctl("msg", "consume", "q", "--exec", command, "--hands", 3, "--count", 2, *port)
        assert {line for line in said.splitlines() if line.startswith("q ")} == {"q good", "q bad", "q 377\\0"}
        assert "its command ended with 1, and it comes again in" in said
        [left] = [*client.browse("q", "delayed"), *client.browse("q", "ready")]
        assert (left.data, left.deliveries) == ("bad", 1), "the others had their leases extended"


def test_dead_letters_are_counted_and_moved_by_reason(node: Node) -> None:
    port = ("--port", node.port)
    assert qctl("queue", "dead", *port).splitlines() == ["dead letters\tfrom\tcount\tfirst\treason"]
    with node.client() as client:
        client.configure("mail", dead_letter="mail.dead", default_ttl=5400)
        client.produce_many("mail", list(range(7)))
        taken = client.consume_many("mail", 7)
        client.bury(taken[:4], "HTTP 500 from api")
        client.bury(taken[4:6], "no such address")
        client.bury(taken[6:])
        rows = [line.split("\t") for line in qctl("queue", "dead", *port).splitlines()[1:]]
        assert [[*row[:3], row[4]] for row in rows] == [
            ["mail.dead", "mail", "4", "HTTP 500 from api"],
            ["mail.dead", "mail", "2", "no such address"],
            ["mail.dead", "mail", "1", "not said"],
        ]
        assert json.loads(qctl("queue", "dead", "--json", *port).splitlines()[0])["letters"] == 4
        peeked = qctl("msg", "peek", "mail.dead", "--count", 1, *port).splitlines()[1]
        assert peeked.endswith("\tfrom mail: HTTP 500 from api")
        assert qctl("queue", "move", "mail.dead", "--reason", "HTTP 500", *port) == "4 moved\n"
        assert "no dead letter at rest" in qctl("queue", "move", "mail.dead", "--reason", "HTTP", *port, code=3)
        assert client.monitor("mail")["ready"] == 4
        shown = qctl("queue", "show", "mail", *port)
        assert "default_ttl\t1h30m\n" in shown
        assert "buried\t7\n" in shown
        listed = dict(
            zip(
                *[line.split("\t") for line in qctl("queue", "ls", "--pattern", "mail", *port).splitlines()[:2]],
                strict=True,
            )
        )
        assert (listed["ready"], listed["dead"], listed["consumers"]) == ("4", "3", "0")


def test_a_messages_life_is_told_from_the_log(node: Node) -> None:
    port = ("--port", node.port)
    with node.client() as client:
        msg_id = client.produce("q", "x", retry=60)
        client.release([client.consume("q") or 0], delay=0)
        lives = [line.split("\t")[1] for line in qctl("msg", "trace", msg_id, *port).splitlines()[1:]]
        assert lives == ["produce", "deliver", "release"]
        client.confirm(client.consume("q") or 0)
    told = [json.loads(line) for line in qctl("msg", "trace", msg_id, "--json", *port).splitlines()]
    assert [one["kind"] for one in told] == ["produce", "deliver", "release", "deliver", "confirm"]
    assert "the log knows nothing of it" in qctl("msg", "trace", 99 * 1024, *port, code=3)


def test_a_list_is_shown_again_and_again_with_rates_until_it_is_ended(node: Node) -> None:
    with node.client() as client:
        client.produce("q", 0)
        watching = begin("queue", "ls", "--watch", "--interval", "200ms", "--port", node.port)
        assert watching.stdout is not None
        rates: set[str] = set()
        until = time.monotonic() + 20
        while not any(float(rate) > 0 for rate in rates - {"-"}) and time.monotonic() < until:
            client.produce_many("q", list(range(100)))
            line = watching.stdout.readline()
            rates |= {line.split("\t")[6]} if line.startswith("q\t") else set()
        watching.send_signal(signal.SIGINT)
        _, said = watching.communicate(timeout=10)
        assert (watching.returncode, said) == (0, "")
        assert any(float(rate) > 0 for rate in rates - {"-"}), rates
