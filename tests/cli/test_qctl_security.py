"""qctl access and qctl cluster secret, and the options by which every command shows who asks, as a user runs them."""

import json
import subprocess
from pathlib import Path

from tests.cli.test_qctl import QCTL, qctl
from tests.faults.security import Authority
from tests.node import Node, free_port


def test_who_was_added_may_do_what_was_said_and_nobody_else_may(tmp_path: Path) -> None:
    path = tmp_path / "access.toml"
    words = [
        QCTL,
        "access",
        "add",
        "worker",
        "--file",
        str(path),
        "--allow",
        "produce,consume:jobs*",
        "--allow",
        "look",
    ]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    token = done.stdout
    assert token.startswith("worker.")
    assert len(token.splitlines()) == 1, "alone, so that it can be put into a file"
    assert done.stderr == "may: produce:jobs*, consume:jobs*, look\n"
    (tmp_path / "token").write_text(token)
    assert path.stat().st_mode & 0o777 == 0o600
    assert token.strip().partition(".")[2] not in path.read_text()
    assert "has 'worker' already" in qctl("access", "add", "worker", "-f", path, "--allow", "look", code=1)
    assert "no right 'fly'" in qctl("access", "add", "x", "-f", path, "--allow", "fly", code=1)
    assert "one pattern for each" in qctl("access", "add", "x", "-f", path, "--allow", "look:a,consume:b", code=1)
    assert "is taken" in qctl("access", "add", "local", "-f", path, "--allow", "look", code=1)
    node = Node(tmp_path, {"access_file": str(path)})
    node.start()
    try:
        shown = ("--port", node.port, "--token-file", tmp_path / "token")
        assert "not_allowed" in qctl("msg", "produce", "jobs", "x", "--port", node.port, code=1)
        qctl("msg", "produce", "jobs", "x", *shown)
        assert "x" in qctl("msg", "consume", "jobs", *shown)
        assert "not_allowed" in qctl("queue", "remove", "jobs", "--yes", *shown, code=1)
        assert "jobs" in qctl("queue", "ls", *shown)
        assert qctl("bench", "-n", 300, "--queues", 1, *shown, code=1), "it asks for queues of other names"
        qctl("access", "allow", "worker", "-f", path, "--allow", "look")
        assert "read again, too: access_file" in qctl("node", "reload", "-c", node.config_path)
        assert "read again, too" not in qctl("node", "reload", "-c", node.config_path), "nothing in it has changed"
        assert "not_allowed" in qctl("msg", "produce", "jobs", "x", *shown, code=1)
        second = qctl("access", "token", "worker", "-f", path, "--only").splitlines()[-1]
        qctl("node", "reload", "-c", node.config_path)
        assert "not_authenticated" in qctl("queue", "ls", *shown, code=1)
        (tmp_path / "token").write_text(second)
        qctl("queue", "ls", *shown)
        qctl("access", "allow", "anonymous", "-f", path, "--allow", "look:public")
        rows = [json.loads(line) for line in qctl("access", "ls", "-f", path, "--json").splitlines()]
        assert [(row["name"], row["tokens"], row["allow"]) for row in rows] == [
            ("worker", 1, ["look"]),
            ("anonymous", 0, ["look:public"]),
        ]
        assert "worker" in qctl("access", "ls", "-f", path)
        qctl("access", "rm", "worker", "-f", path)
        assert "knows nobody called" in qctl("access", "rm", "worker", "-f", path, code=1)
    finally:
        node.stop()


def test_a_command_speaks_tls_with_a_node_that_does(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "authority")
    node = Node(tmp_path, {"tls": 1, "tls_cert": authority.issue("127.0.0.1")})
    node.start()
    try:
        qctl("msg", "produce", "q", "x", "--port", node.port, "--ca", authority.ca)
        assert "requests_per_s" in qctl("bench", "-n", 300, "--port", node.port, "--ca", authority.ca)
        assert "certificate" in qctl("queue", "ls", "--port", node.port, "--tls", code=1)
    finally:
        node.stop()


def test_a_secret_is_made_changed_and_never_shown(tmp_path: Path) -> None:
    path = tmp_path / "cluster.secret"
    said = qctl("cluster", "secret", "--file", path)
    first = path.read_text().strip()
    assert path.stat().st_mode & 0o777 == 0o600
    said += qctl("cluster", "secret", "--file", path)
    said += qctl("cluster", "secret", "--file", path, "--rotate")
    second, kept = path.read_text().split()
    assert kept == first != second
    assert "holds two secrets" in qctl("cluster", "secret", "--file", path, "--rotate", code=1)
    said += qctl("cluster", "secret", "--file", path, "--retire")
    assert path.read_text().split() == [second]
    said += qctl("config", "show", "--set", f"cluster_secret_file={path}")
    assert first not in said
    assert second not in said
    path.chmod(0o644)
    assert "chmod 600" in qctl("cluster", "secret", "--file", path, code=1)
    path.chmod(0o600)
    qctl("cluster", "secret", code=1)


def test_a_cluster_on_this_machine_has_a_secret_that_is_changed_while_it_runs(tmp_path: Path) -> None:
    port = free_port()
    qctl("cluster", "start", "--dir", tmp_path, "--port", port)
    try:
        before = (tmp_path / "cluster.secret").read_text()
        said = qctl("cluster", "secret", "--dir", tmp_path, "--rotate")
        assert said.count("has read it again") == 6
        assert (tmp_path / "cluster.secret").read_text() != before
        assert qctl("cluster", "status", "--port", port).count("\tup\t") == 3
        qctl("msg", "produce", "q", "x", "--port", port)
    finally:
        qctl("cluster", "stop", "--dir", tmp_path)


def test_what_can_not_be_used_is_said_before_a_node_starts(tmp_path: Path) -> None:
    words = ("node", "start", "-b", "-d", tmp_path / "data", "-p", free_port())
    assert "No such file" in qctl(*words, "-s", f"access_file={tmp_path}/none", code=1)
    assert "needs tls_cert" in qctl(*words, "-s", "tls=1", code=1)
    nodes = '[{"node_id": 1, "host": "192.0.2.1", "port": 5}]'
    assert "cluster_secret_file" in qctl(*words, "-s", f"cluster_node_list={nodes}", code=1)


def test_qctl_warns_where_others_can_read_a_token(tmp_path: Path) -> None:
    node = Node(tmp_path, {})
    node.start()
    try:
        token = tmp_path / "token"
        token.write_text("w.secret")
        token.chmod(0o644)
        at = ("--port", node.port, "--token-file", token)
        said = qctl("queue", "ls", *at)
        assert f"qctl: warning: {token} can be read by others: chmod 600" in said
        token.chmod(0o600)
        assert "warning" not in qctl("queue", "ls", *at)
        said = qctl("queue", "ls", "--host", f"quorate://:w.secret@127.0.0.1:{node.port}")
        assert "qctl: warning: a token on the command line" in said
        assert "w.secret" not in said
        assert "warning" not in qctl("queue", "ls", "--host", f"quorate://127.0.0.1:{node.port}")
    finally:
        node.stop()
