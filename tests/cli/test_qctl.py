"""qctl, run as a user runs it."""

import json
import os
import pty
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import quorate_compiled
from quorate.version import VERSION
from tests.conftest import StartNode
from tests.node import Node, free_port

QCTL = str(Path(sys.executable).with_name("qctl"))


def qctl(*words: object, code: int = 0, folder: Path | None = None, text: str = "") -> str:
    """Run qctl; what it printed. Its errors go with what it prints."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("QUORATE_")}
    done = subprocess.run(
        [QCTL, *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        input=text,
        cwd=folder,
        env={**environment, "COLUMNS": "200"},
        check=False,
        timeout=60,
    )
    assert "Traceback" not in done.stdout
    assert done.returncode == code, done.stdout
    return done.stdout


@pytest.fixture
def node(start_node: StartNode) -> Node:
    return start_node()


def test_a_node_is_started_looked_at_and_stopped(tmp_path: Path) -> None:
    port = free_port()
    assert "ready on" in qctl("node", "start", "-b", "-p", port, folder=tmp_path)
    try:
        assert (tmp_path / "quorate-data").is_dir()
        assert f"version {VERSION}" in qctl("node", "status", "--port", port)
        assert "is in use by process" in qctl("node", "start", "-b", "-p", port, folder=tmp_path, code=1)
        assert "read again; changed: nothing" in qctl("node", "reload", folder=tmp_path)
    finally:
        assert "has stopped" in qctl("node", "stop", folder=tmp_path)
    assert "no node runs" in qctl("node", "stop", folder=tmp_path, code=1)
    assert "no damage" in qctl("log", "verify", folder=tmp_path)
    assert "nothing to repair" in qctl("log", "repair", folder=tmp_path)


def test_a_reload_says_what_came_of_it(tmp_path: Path) -> None:
    config = tmp_path / "node.json"
    port = free_port()

    def written(**settings: object) -> None:
        config.write_text(json.dumps({"port": port, "data_dir": str(tmp_path / "data"), **settings}))

    written()
    qctl("node", "start", "-b", "-c", config, folder=tmp_path)
    try:
        written(max_queues=7, log_level="debug")
        assert "changed: log_level, max_queues" in qctl("node", "reload", "-c", config)
        written(max_queues=7, port=port + 1)
        said = qctl("node", "reload", "-d", tmp_path / "data")
        assert "port was changed; that takes a restart" in said
        assert "changed: log_level" in said
        config.write_text('{"max_queues": "many"}')
        said = qctl("node", "reload", "-d", tmp_path / "data", code=1)
        assert "stays as it was" in said
        assert "max_queues" in said
    finally:
        qctl("node", "stop", "-d", tmp_path / "data")


def test_a_service_manager_hears_when_the_node_is_ready_reloads_and_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "manager"))
        manager.settimeout(20)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "manager"))
        port = free_port()
        qctl("node", "start", "-b", "-p", port, "-d", "data", folder=tmp_path)
        try:
            assert manager.recv(1000).decode().split("\n") == ["READY=1", f"STATUS=node 1 on 127.0.0.1:{port}"]
            qctl("node", "reload", "-d", "data", folder=tmp_path)
            assert manager.recv(1000).startswith(b"RELOADING=1\nMONOTONIC_USEC=")
            assert manager.recv(1000) == b"READY=1"
        finally:
            qctl("node", "stop", "-d", "data", folder=tmp_path)
        assert manager.recv(1000) == b"STOPPING=1"
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "nobody"))
        assert "ready on" in qctl("node", "start", "-b", "-p", port, "-d", "data", folder=tmp_path)
        qctl("node", "stop", "-d", "data", folder=tmp_path)


def test_messages_go_in_and_out_by_hand(node: Node) -> None:
    port = ("--port", node.port)
    msg_id = qctl("msg", "produce", "test1", "hello world", "--retry", 60, *port).strip()
    qctl("msg", "produce", "test2", '{"a":[1]}', "--parse", *port)
    qctl("msg", "produce", "test2", "-", *port, text="from stdin")
    listed = qctl("queue", "ls", "--pattern", "test*", *port)
    assert [line.split()[:2] for line in listed.splitlines()] == [["queue", "size"], ["test1", "1"], ["test2", "2"]]
    assert qctl("msg", "consume", "test1", *port) == f"{msg_id} 1 hello world\n"
    assert qctl("msg", "consume", "test1", *port, code=3) == ""
    assert "1 of 1 confirmed" in qctl("msg", "confirm", msg_id, *port)
    assert "0 of 1 confirmed" in qctl("msg", "confirm", msg_id, *port, code=3)
    lines = qctl("msg", "consume", "test2", "--count", 5, "--json", *port).splitlines()
    assert [json.loads(line)["data"] for line in lines] == [{"a": [1]}, "from stdin"]
    flying = qctl("msg", "peek", "test2", "--state", "in_flight", *port).splitlines()
    assert [line.split()[1] for line in flying] == ["state", "in_flight", "in_flight"]
    assert qctl("msg", "peek", "test2", "--json", *port, code=3) == ""
    first = json.loads(lines[0])["msg_id"]
    assert "1 of 1 released" in qctl("msg", "release", first, "--delay", 50, *port)
    assert json.loads(qctl("msg", "show", first, "--json", *port))["state"] == "delayed"
    assert "1 of 1 released" in qctl("msg", "release", first, *port)
    assert json.loads(qctl("msg", "peek", "test2", "--json", *port))["data"] == {"a": [1]}
    assert "no_such_message" in qctl("msg", "show", "--queue", "test2", "--key", "k", *port, code=3)
    assert "dead letter" in qctl("msg", "bury", json.loads(lines[1])["msg_id"], *port, code=1)
    assert "NAME: TEXT" in qctl("msg", "produce", "test2", "x", "--header", "no colon", *port, code=1)
    there = ("--to", "test4", *port)
    assert "which messages" in qctl("msg", "move", "test2", *port, code=1)
    assert "no_such_queue" in qctl("msg", "move", "test2", "--all", *there, code=3)
    assert "1 moved" in qctl("msg", "move", "test2", first, "--create", *there)
    assert "0 moved, 1 stayed" in qctl("msg", "move", "test4", "--all", *port, code=3)
    kept = qctl("msg", "produce", "test3", "x", "-H", "trace: a:b", "--key", "k", *port).strip()
    assert json.loads(qctl("msg", "show", "--queue", "test3", "--key", "k", "--json", *port))["headers"] == {
        "trace": "a:b"
    }
    assert json.loads(qctl("msg", "show", kept, "--json", *port))["retry"] == 60
    shown = dict(line.split("\t") for line in qctl("msg", "show", kept, *port).splitlines()[:-1])
    assert (shown["retry"], shown["key"], shown["header trace"], shown["expires"]) == ("1m", "k", "a:b", "never")


def test_the_logs_tail_shows_what_happened(node: Node) -> None:
    with node.client() as client:
        msg_id = client.produce("q", "x", retry=9)
        client.confirm(client.consume("q") or 0)
    kinds = [json.loads(line)["kind"] for line in qctl("log", "tail", "--json", "--port", node.port).splitlines()]
    assert [kind for kind in kinds if kind not in ("lead", "members")] == ["produce", "deliver", "confirm"]
    assert f"confirm q msg_ids=[{msg_id}]" in qctl("log", "tail", "-n", 1, "--port", node.port)


def test_a_queues_settings_are_changed_and_it_is_cleared_and_removed(node: Node) -> None:
    port = ("--port", node.port)
    assert "yes" in qctl("queue", "configure", "q", "--max-size", 5, "--pause", *port)
    qctl("msg", "produce", "q", "x", *port)
    assert "nothing to change" in qctl("queue", "configure", "typo", *port, code=1)
    assert "exclude each other" in qctl("queue", "configure", "q", "--pause", "--resume", *port, code=1)
    assert "no_such_queue" in qctl("queue", "show", "typo", *port, code=3)
    assert "no_such_queue" in qctl("msg", "consume", "typo", *port, code=3)
    assert qctl("queue", "ls", "--pattern", "typo*", *port).split()[0] == "queue"
    assert "1 messages removed" in qctl("queue", "clear", "q", "--yes", *port)
    assert "removed with 0" in qctl("queue", "remove", "q", "-y", *port)
    assert "no_such_queue" in qctl("queue", "clear", "q", "--yes", *port, code=3)


def on_a_terminal(text: str, *words: object) -> tuple[int, str]:
    """Run qctl with a terminal for its input, on which that is typed."""
    own, its = pty.openpty()
    try:
        os.write(own, text.encode())
        done = subprocess.run(
            [QCTL, *map(str, words)], stdin=its, stdout=subprocess.PIPE, text=True, check=False, timeout=60
        )
        return done.returncode, done.stdout
    finally:
        os.close(own)
        os.close(its)


@pytest.mark.parametrize("command", ["clear", "remove"])
def test_it_asks_before_messages_go_with_their_number(node: Node, command: str) -> None:
    """Found in a first trial: a slip of the finger on a terminal emptied a queue."""
    with node.client() as client:
        client.produce_many("mail", [1, 2, 3])
        words = ("queue", command, "mail", "--port", node.port)
        said = qctl(*words, code=2)
        assert f"{command} the queue mail with 3 messages?" in said
        assert "--yes" in said
        code, said = on_a_terminal("n\n", *words)
        assert (code, "with 3 messages? [y/N]" in said) == (1, True)
        assert client.monitor("mail")["size"] == 3, "nothing was done"
        code, said = on_a_terminal("y\n", *words)
        assert (code, "3 messages" in said.splitlines()[-1] or "removed" in said) == (0, True)
        assert [row.size for row in client.queue_rows("mail")] == ([0] if command == "clear" else [])
    assert "no_such_queue" in qctl("queue", command, "typo", "--port", node.port, code=3)


def test_node_status_shows_every_node_that_the_address_names(node: Node) -> None:
    nobody = free_port()
    url = f"quorate://127.0.0.1:{node.port},127.0.0.1:{nobody}"
    said = qctl("node", "status", "--host", url, code=1)
    assert f"node 1 on 127.0.0.1:{node.port}, version" in said
    assert f"127.0.0.1:{nobody}: " in said
    said = qctl("cluster", "status", "--host", f"quorate://127.0.0.1:{nobody},127.0.0.1:{node.port}")
    assert f"127.0.0.1:{nobody}: " in said
    assert "node 1 leads" in said


def test_queues_are_listed_by_what_is_asked_for(node: Node) -> None:
    with node.client() as client:
        for name, count in (("a", 1), ("b", 3), ("c", 2)):
            client.produce_many(name, list(range(count)))
    told = qctl("queue", "ls", "--sort", "ready", "--descending", "--port", node.port).splitlines()
    assert [line.split()[0] for line in told[1:]] == ["b", "c", "a"]
    oldest = qctl("queue", "ls", "--sort", "oldest", "--limit", 2, "--port", node.port).splitlines()
    assert oldest[0].split("\t")[5] == "oldest"
    assert all(line.split("\t")[5].endswith("s") for line in oldest[1:])
    assert [line.split()[0] for line in oldest[1:]] == ["a", "b"]
    produced = qctl("queue", "ls", "--sort", "produced", "--descending", "--port", node.port).splitlines()
    assert [line.split()[-1] for line in produced] == ["produced", "3", "2", "1"]
    assert "one of name, size" in qctl("queue", "ls", "--sort", "colour", "--port", node.port, code=1)


def test_names_that_look_like_markup_are_printed_as_they_are(node: Node) -> None:
    qctl("msg", "produce", "[red]x[/blue]", "y", "--port", node.port)
    assert "[red]x[/blue]" in qctl("queue", "ls", "--port", node.port)


def test_all_queues_are_listed_and_a_row_is_a_line_in_a_pipe(node: Node) -> None:
    long = "n" * 200
    with node.client() as client:
        for number in range(1100):
            client.configure(f"{long}{number:04}", max_size=1)
    lines = qctl("queue", "ls", "--port", node.port).splitlines()
    assert len(lines) == 1101
    assert all(line.startswith(long) for line in lines[1:])


def test_every_part_says_which_version_it_is(node: Node) -> None:
    assert qctl("--version") == f"qctl {VERSION}, {quorate_compiled.running()}\n"


def test_a_folder_named_as_ours_in_the_way_does_no_harm(node: Node, tmp_path: Path) -> None:
    for name in ("storage", "data", "cli", "net", "actors", "quorate"):
        (tmp_path / "there" / name).mkdir(parents=True)
        (tmp_path / "there" / name / "__init__.py").write_text("raise ImportError('of somebody else')")
    qctl("queue", "ls", "--port", node.port, folder=tmp_path / "there")


def test_bench_prints_one_line_of_figures(node: Node) -> None:
    figures = json.loads(qctl("bench", "-c", 4, "-n", 300, "--json", "--port", node.port))
    assert figures["requests"] >= 300
    assert figures["requests_per_s"] > 0


def test_config_show_says_what_holds_and_where_it_comes_from(tmp_path: Path) -> None:
    (tmp_path / "c.json").write_text('{\n"port": 1234}')
    shown = qctl("config", "show", "-c", "c.json", "-s", "flush=interval", folder=tmp_path)
    assert any(line.split() == ["port", "1234", "c.json:2"] for line in shown.splitlines())
    assert any(line.split()[:2] == ["flush", "interval"] for line in shown.splitlines())
    assert "there is no setting 'prot'" in qctl("config", "show", "-s", "prot=1", code=1)


def test_faults_are_one_line_each(tmp_path: Path) -> None:
    assert "qctl: 127.0.0.1:1: " in qctl("queue", "ls", "--port", 1, code=1)
    assert "holds no log" in qctl("log", "verify", "-d", tmp_path / "none", code=1)
    assert "'nan' is neither a duration" in qctl("msg", "produce", "q", "x", "--ttl", "nan", "--port", 1, code=2)
    nodes = '[{"node_id": 2, "host": "127.0.0.1", "port": 1101}]'
    said = qctl("node", "start", "-b", "-p", free_port(), "-s", f"cluster_node_list={nodes}", folder=tmp_path, code=1)
    assert "this is node 1, and it does not stand there" in said
