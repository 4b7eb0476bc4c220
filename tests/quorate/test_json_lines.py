"""Log lines as JSON: one object a line, whatever is in it."""

import json
import logging
import sys

from quorate.json_lines import JsonLines
from tests.conftest import StartNode


def record(message: str, *values: object, error: bool = False) -> logging.LogRecord:
    info = None
    if error:
        try:
            raise ValueError("bad\nvalue")
        except ValueError:
            info = sys.exc_info()
    return logging.LogRecord("quorate.test", logging.WARNING, "file", 1, message, values, info)


def test_a_line_has_its_message_and_what_it_was_made_of() -> None:
    line = JsonLines(shard=2).format(record("node %d says %r\n%s", 7, "a", ["b"]))
    assert "\n" not in line
    found = json.loads(line)
    assert found["time"].endswith("Z")
    assert {key: found[key] for key in ("level", "logger", "shard", "message", "event", "values")} == {
        "level": "warning",
        "logger": "quorate.test",
        "shard": 2,
        "message": "node 7 says 'a'\n['b']",
        "event": "node %d says %r\n%s",
        "values": [7, "a", "['b']"],
    }
    assert "values" not in json.loads(JsonLines().format(record("100 %")))
    assert "bad\\nvalue" in JsonLines().format(record("x", error=True))


def test_a_node_logs_so_in_all_its_processes(start_node: StartNode) -> None:
    node = start_node(log_format="json", shards=2)
    node.stop()
    lines = [json.loads(line) for line in node.log.splitlines() if not line.startswith("ready")]
    assert {line.get("shard") for line in lines} == {None, 0, 1}
    assert len({line["process"] for line in lines}) == 3
    assert any(line["event"].startswith("node %d leads") for line in lines)
