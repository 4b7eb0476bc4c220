"""The configuration: the original's file is accepted, overrides win, and every fault is named at once with its line."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from actors.node.config import client_address, load, other_nodes, own_node, virtual_queues
from actors.node.config_file import ConfigError, without_comments
from actors.node.options import http_listeners

ORIGINAL = """{
    // where the log goes
    "log_prefix": "", "log_level": 3,
    "node_type": 1, "node_id": 2, // this node
    "host": "127.0.0.1",
    "port": 1112,
    "queue_size": 1000, /* messages */ "queue_log_size": 50000,
    "queue_sync_rate": 10000,
    "forward_request": 1,
    "cluster_node_list": [
        {"node_id": 1, "host": "127.0.0.1", "port": 1101},
        {"node_id": 2, "host": "127.0.0.1", "port": 1102}, // the nodes' own ports
        {"node_id": 3, "host": "127.0.0.1", "port": 1103},
    ],
    "queue_data_dir": "./data/node2", "queue_data_blocks": 1024,
    "virtual_queue_list": {"all//": ["a", "b"]},
}
"""


def test_the_originals_file_is_accepted_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "node.json"
    path.write_text(ORIGINAL)
    config = load(path, environment={})
    assert (config["node_id"], config["port"], config["log_level"]) == (2, 1112, "info")
    assert virtual_queues(config) == {"all//": ["a", "b"]}
    assert other_nodes(config) == [(1, "127.0.0.1", 1101), (3, "127.0.0.1", 1103)]
    assert own_node(config) == ("127.0.0.1", 1102)
    assert config["data_dir"] == "./data/node2"
    assert [warning.split(": ")[1] for warning in config.warnings] == [
        "queue_data_dir is taken as data_dir",
        "queue_data_blocks is not used here",
    ]
    assert config.values["port"].source == f"{path}:6"


def test_with_nothing_at_all_everything_has_a_default() -> None:
    config = load(environment={})
    assert (config["data_dir"], config["host"], config["port"]) == ("./quorate-data", "127.0.0.1", 1111)


def test_environment_overrides_the_file_and_the_command_line_overrides_both(tmp_path: Path) -> None:
    path = tmp_path / "node.json"
    path.write_text('{"port": 1, "node_id": 1, "flush": "commit"}')
    config = load(path, {"QUORATE_PORT": "2", "QUORATE_NODE_ID": "2"}, {"port": 3})
    assert (config["port"], config["node_id"], config["flush"]) == (3, 2, "commit")
    assert config.values["node_id"].source == "environment QUORATE_NODE_ID"


def test_what_clients_read_in_the_environment_is_no_setting_of_a_node() -> None:
    """Whoever has it set for `qctl` starts a node in the same shell."""
    own = {f"QUORATE_{name}": "quorate://h" for name in ("URL", "TLS", "CA", "TOKEN", "TOKEN_FILE")}
    assert load(None, own).values == load(None, {}).values


def test_every_fault_is_named_at_once_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "node.json"
    path.write_text('{\n"port": "x",\n"prot": 1,\n"flush": "never",\n"port": 70000,\n"max_wait_s": 1e999}')
    with pytest.raises(ConfigError) as caught:
        load(path, {"QUORATE_NODE_ID": "0"}, {"log_level": "loud"})
    faults = "\n".join(caught.value.faults)
    for expected in (
        f"{path}:2: port: 'x' is not a number",
        f"{path}:3: there is no setting 'prot'; is it 'port'?",
        f"{path}:4: flush: 'never' is none of commit, interval",
        f"{path}:5: port stands in line 2 already",
        f"{path}:5: port: 70000 is above 65535",
        f"{path}:6: max_wait_s: inf is not a number",
        "environment QUORATE_NODE_ID: node_id: 0 is below 1",
        "command line: log_level: 'loud' is none of",
    ):
        assert expected in faults


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"port": 1', ":1:"),
        ('{"port": 1} x', "behind the closing bracket"),
        ("[1]", "'{' is missing"),
        ('{"port" 1}', "':' is missing"),
        ('{"virtual_queue_list": {"": ["a"]}}', "is empty"),
        ('{"virtual_queue_list": {"v": ["a", "a"]}}', "twice"),
        ('{"virtual_queue_list": {"v": ["v"]}}', "virtual itself"),
        ('{"virtual_queue_list": {"v": ["a\\u0001"]}}', "control character"),
        ('{"cluster_node_list": [{"host": "h", "port": 0}]}', "entry 0: port 0"),
        (
            '{"shards": 4, "cluster_node_list": [{"node_id": 1, "host": "a", "port": 1101},'
            ' {"node_id": 2, "host": "a", "port": 1104}]}',
            "node 1 has the ports 1101 to 1104 of a, and node 2 those from 1104 on: leave 4 for each",
        ),
        (
            '{"shards": 4, "port": 1103, "cluster_node_list": [{"node_id": 1, "host": "127.0.0.1", "port": 1101}]}',
            "would be at 127.0.0.1:1103, which is a port for clients",
        ),
        (
            '{"shards": 4, "cluster_node_list": [{"node_id": 1, "host": "127.0.0.1", "port": 65533}]}',
            "has no 4 ports from 127.0.0.1:65533 on",
        ),
        ('{"listeners": [{"protocol": "gopher", "port": 1}]}', "'gopher' is none of json"),
        ('{"listeners": [{"protocol": "json"}]}', "a host and a port"),
        (
            '{"host": "0.0.0.0", "cluster_node_list": [{"node_id": 1, "host": "a", "port": 1},'
            ' {"node_id": 2, "host": "b", "port": 1}]}',
            "set advertise_host",
        ),
        ('{"max_data_bytes": 4194304, "max_request_bytes": 1048576}', "no request could carry"),
        ('{"journal_segment_bytes": 1048576}', "at least four times"),
        ('{"log_prefix": "/etc/passwd/log"}', "can't be written to"),
    ],
)
def test_what_can_not_be_used_is_told(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "node.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match=says):
        load(path, {})


def test_comments_become_blanks_and_strings_stay() -> None:
    assert without_comments('{"a": "//x", // y\n"b": /* z */ 1,}') == '{"a": "//x",     \n"b":         1 }'


def test_changes_are_told_apart_by_whether_they_need_a_restart() -> None:
    old, new = load(environment={}), load(environment={}, flags={"port": 5, "max_wait_s": 5})
    assert old.changes(new) == (["max_wait_s"], ["port"])


def test_other_nodes_of_a_cluster_are_named() -> None:
    nodes = '[{"node_id": 1, "host": "127.0.0.1", "port": 1101}, {"node_id": 2, "host": "[::1]", "port": 1111}]'
    config = load(environment={}, flags={"cluster_node_list": nodes})
    assert other_nodes(config) == [(2, "::1", 1111)]
    assert own_node(config) == ("127.0.0.1", 1101)
    assert client_address(config) == ("127.0.0.1", 1111)
    assert own_node(load(environment={})) is None, "a node alone opens no port for others"


def test_clients_are_told_the_address_that_is_advertised() -> None:
    config = load(environment={}, flags={"host": "0.0.0.0", "advertise_host": "q.example", "advertise_port": 99})
    assert client_address(config) == ("q.example", 99)


def test_more_ports_for_clients_have_a_protocol_each() -> None:
    config = load(environment={}, flags={"listeners": '[{"protocol": "json", "host": "[::1]", "port": 7}]'})
    assert config["listeners"] == [{"protocol": "json", "host": "::1", "port": 7, "tls": False, "debug": False}]
    config = load(environment={}, flags={"listeners": '[{"protocol": "disque", "debug": true}]'})
    [disque] = config["listeners"]
    assert disque == {"protocol": "disque", "host": "127.0.0.1", "port": 7711, "tls": False, "debug": True}


def test_a_listener_for_gmqs_monitor_is_the_consoles() -> None:
    given = [{"protocol": "gmq"}, {"protocol": "gmq-monitor"}, {"protocol": "gmq-monitor", "port": 5, "tls": True}]
    flags = {"listeners": given, "tls_cert": "c", "tls_key": "k", "http_listeners": [{"port": 9}]}
    config = load(environment={}, flags=flags)
    assert [(one["protocol"], one["port"]) for one in config["listeners"]] == [("gmq", 9503)]
    first, plain, secure = config["http_listeners"]
    assert first["serves"] == ["console", "metrics", "health"]
    assert plain == {"host": "127.0.0.1", "port": 8000, "serves": ["gmq-monitor"]}
    assert (secure["port"], secure["cert"], secure["key"]) == (5, "c", "k")


@pytest.mark.parametrize(
    "listeners",
    [
        [{"host": "127.0.0.1", "port": 1111, "tls": True}],
        [{"host": "0.0.0.0", "port": 1111}],
        [{"host": "127.0.0.1", "port": 1443, "tls": True}, {"host": "127.0.0.1", "port": 1443}],
    ],
)
def test_no_two_ports_for_clients_are_one(listeners: list[dict[str, Any]]) -> None:
    """A trial's: each client was given to either, and the half of them did not speak its protocol."""
    with pytest.raises(ConfigError, match="where clients have another port already"):
        load(environment={}, flags={"listeners": json.dumps(listeners)})


@pytest.mark.parametrize(
    ("nodes", "says"),
    [
        ('[{"host": "127.0.0.1", "port": 1111}, {"host": "10.0.0.2", "port": 1111}]', "a node_id stands there twice"),
        ('[{"node_id": 2, "host": "a", "port": 1}, {"node_id": 3, "host": "a", "port": 1}]', "an address stands"),
        ('[{"node_id": 1, "host": "127.0.0.1", "port": 1111}]', "which is a port for clients"),
        ('[{"node_id": 2, "host": "127.0.0.1", "port": 1101}]', "this is node 1, and it does not stand there"),
        ('[{"node_id": 1, "host": "0.0.0.0", "port": 1101}]', "no address that other nodes could dial"),
    ],
)
def test_a_cluster_that_can_not_be_is_refused(nodes: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        load(environment={}, flags={"cluster_node_list": nodes})


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ({}, "a list of objects"),
        ([{"prt": 1}], "entry 0 is not an object with host"),
        ([{"port": "x"}], "port is 'x': int is wanted"),
        ([{"port": 0}], "from 1 to 65535"),
        ([{"serves": ["pages"]}], "serves some of console, metrics, health"),
        ([{"serves": []}], "serves some of"),
    ],
)
def test_http_listeners_that_are_none_are_refused(value: Any, says: str) -> None:
    with pytest.raises(ValueError, match=re.escape(says)):
        http_listeners(value)
    assert http_listeners([{}])[0]["port"] == 1180
