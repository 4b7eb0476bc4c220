"""The node's configuration: what there is to set, where it came from, and every fault in it at once.

A JSON file, comments (`//`, `/* */`) and a comma before a closing bracket allowed; over it the environment
(`QUORATE_PORT=1112`), over that the command line. Read once, checked once; the parts get what they need of it.
"""

import json
import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from quorate.protocol import name_fault

ENVIRONMENT_PREFIX: Final = "QUORATE_"
LOG_LEVELS: Final = ("debug", "info", "warning", "error")
MIB: Final = 1 << 20


class ConfigError(Exception):
    """The configuration can't be used; `faults` are all that is wrong with it, a line each."""

    def __init__(self, faults: list[str]) -> None:
        super().__init__("\n".join(faults))
        self.faults = faults


@dataclass(frozen=True)
class Option:
    """One thing to set. `choices` for words, `minimum` and `maximum` for numbers; `is_live`: SIGHUP changes it."""

    name: str
    default: Any
    meaning: str
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[Any, ...] = ()
    is_live: bool = False


OPTIONS: Final = (
    Option("data_dir", "./quorate-data", "the folder with all that the node keeps"),
    Option("host", "127.0.0.1", "the address that the node listens on"),
    Option("port", 1111, "the port for clients, TCP and UDP", 1, 65535),
    Option("node_id", 1, "this node's number in its cluster", 1, 1_000_000),
    Option("node_type", 1, "the cluster's number", 0, 2**31 - 1),
    Option("shards", 1, "parts of the queues, each with a log and a process of its own", 1, 1024),
    Option("log_prefix", "", "log lines go to this path with .log behind it; empty: to standard error"),
    Option("log_level", "info", "the least level that is logged", choices=LOG_LEVELS, is_live=True),
    Option("queue_size", 0, "messages that a queue takes unless it is configured; 0: no limit", 0, 2**53, is_live=True),
    Option("queue_log_size", 1_000_000, "records that the change log keeps", 100, 10**9),
    Option("queue_sync_rate", 100_000, "records a second that a node behind pulls (cluster)", 1, 10**9),
    Option("election_timeout_ms", 400, "the least time without a leader before a node acts (cluster)", 100, 60_000),
    Option("forward_request", 1, "a node that does not lead: 1 forwards, 0 redirects (cluster)", choices=(0, 1)),
    Option("cluster_node_list", [], "the cluster's nodes (cluster): objects with node_id, host, port"),
    Option("virtual_queue_list", {}, "virtual queues: an object of name to list of real queues", is_live=True),
    Option(
        "flush",
        "commit",
        "commit: on disk before the reply. interval: every flush_interval_ms, and a power cut loses what came since",
        choices=("commit", "interval"),
    ),
    Option("flush_interval_ms", 100, "with flush = interval", 1, 60_000),
    Option(
        "lease",
        "delivered",
        "when a delivery is answered: delivered: at once. committed: when it is on disk",
        choices=("delivered", "committed"),
    ),
    Option("max_request_bytes", 4 * MIB, "a request's size", 1024, 6 * MIB, is_live=True),
    Option("max_data_bytes", 1 * MIB, "a message's size", 1, 4 * MIB, is_live=True),
    Option("max_connections", 10_000, "clients at the same time", 1, 1_000_000, is_live=True),
    Option("max_pipelined", 128, "requests of one client that wait for their replies", 1, 100_000, is_live=True),
    Option("max_open_requests", 100_000, "requests of all clients that wait", 1, 10_000_000, is_live=True),
    Option("max_waiters", 50_000, "consumers that wait for a message", 0, 10_000_000, is_live=True),
    Option("max_wait_s", 3600.0, "how long a consumer may ask to wait (s)", 0, 31_536_000, is_live=True),
    Option("max_queues", 100_000, "queues", 1, 10_000_000, is_live=True),
    Option("max_memory_bytes", 0, "memory for messages; 0: 60 % of the machine's", 0, 2**53, is_live=True),
    Option("request_timeout_s", 30.0, "how long a request may take to come in whole (s)", 0.1, 86_400, is_live=True),
    Option("stalled_timeout_s", 60.0, "how long a client may leave replies unread (s)", 0.1, 86_400, is_live=True),
    Option("idle_timeout_s", 0.0, "how long a client may say nothing (s); 0: for ever", 0, 31_536_000, is_live=True),
    Option("journal_segment_bytes", 16 * MIB, "size of a journal segment; there are two or three", MIB, 1024 * MIB),
)
BY_NAME: Final = {option.name: option for option in OPTIONS}


@dataclass(frozen=True)
class Value:
    """What holds for an option, and where it was set ("default", "file.json:12", "environment", "command line")."""

    value: Any
    source: str


@dataclass
class NodeConfig:
    """A checked configuration: `config["port"]`."""

    values: dict[str, Value] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Any:
        return self.values[name].value

    def plain(self) -> dict[str, Any]:
        """Names and values alone."""
        return {name: held.value for name, held in self.values.items()}

    def changes(self, other: "NodeConfig") -> tuple[list[str], list[str]]:
        """What `other` sets differently: what can change while running, and what needs a restart."""
        changed = [option for option in OPTIONS if self[option.name] != other[option.name]]
        return [o.name for o in changed if o.is_live], [o.name for o in changed if not o.is_live]


def load(
    path: Path | None = None, environment: Mapping[str, str] | None = None, flags: Mapping[str, Any] | None = None
) -> NodeConfig:
    """The configuration out of all that sets it. Raises `ConfigError` with every fault."""
    faults: list[str] = []
    config = NodeConfig({option.name: Value(option.default, "default") for option in OPTIONS})
    if path is not None:
        _take_file(path, config, faults)
    for name, text in (os.environ if environment is None else environment).items():
        option_name = name.removeprefix(ENVIRONMENT_PREFIX).lower()
        if name.startswith(ENVIRONMENT_PREFIX) and option_name != "config":
            _take(option_name, _from_text(option_name, text), f"environment {name}", config, faults)
    for name, value in (flags or {}).items():
        if value is not None:
            value = _from_text(name, value) if isinstance(value, str) else value
            _take(name, value, "command line", config, faults)
    check_together(config, faults)
    if faults:
        raise ConfigError(faults)
    return config


def restored(values: Mapping[str, Any]) -> NodeConfig:
    """A configuration that was checked before, in another process."""
    return NodeConfig({name: Value(value, "supervisor") for name, value in values.items()})


def virtual_queues(config: NodeConfig) -> dict[str, list[str]]:
    """Virtual queue to real queues."""
    return dict(config["virtual_queue_list"])


def memory_bytes_max(config: NodeConfig) -> int:
    """The memory for messages (bytes)."""
    asked = int(config["max_memory_bytes"])
    return asked or int(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") * 0.6)


# -- the file ---------------------------------------------------------------------------------------------------

_COMMENT_OR_STRING: Final = re.compile(r'"(?:[^"\\\n]|\\.)*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
_LAST_COMMA: Final = re.compile(r'"(?:[^"\\\n]|\\.)*"|,(?=\s*[}\]])')


def without_comments(text: str) -> str:
    """The text with comments and last commas as blanks, so that lines and columns stay."""

    def blank(found: re.Match[str]) -> str:
        part = found[0]
        return part if part.startswith('"') else re.sub(r"[^\n]", " ", part)

    return _LAST_COMMA.sub(blank, _COMMENT_OR_STRING.sub(blank, text))


def _take_file(path: Path, config: NodeConfig, faults: list[str]) -> None:
    try:
        text = without_comments(path.read_text(encoding="utf-8"))
        members = list(_members(text))
    except OSError as error:
        faults.append(f"{path}: {error.strerror or error}")
        return
    except UnicodeDecodeError as error:
        faults.append(f"{path}: not UTF-8 at byte {error.start}")
        return
    except json.JSONDecodeError as error:
        faults.append(f"{path}:{error.lineno}: {error.msg} (column {error.colno})")
        return
    except (ValueError, RecursionError) as error:
        faults.append(f"{path}: {error}")
        return
    seen: dict[str, int] = {}
    for name, value, line in members:
        if name in seen:
            faults.append(f"{path}:{line}: {name} stands in line {seen[name]} already")
        seen[name] = line
        _take(name, value, f"{path}:{line}", config, faults)


def _members(text: str) -> list[tuple[str, Any, int]]:
    """The top object's names, values and lines. Raises json.JSONDecodeError."""
    decoder = json.JSONDecoder()
    members: list[tuple[str, Any, int]] = []
    blank = re.compile(r"\s*")

    def skip(at: int) -> int:
        found = blank.match(text, at)
        return found.end() if found else at

    def need(character: str, at: int) -> int:
        if text[at : at + 1] != character:
            raise json.JSONDecodeError(f"{character!r} is missing", text, at)
        return skip(at + 1)

    at = need("{", skip(0))
    while text[at : at + 1] != "}":
        if members:
            at = need(",", at)
        start = at
        name, at = decoder.raw_decode(text, at)
        if not isinstance(name, str):
            raise json.JSONDecodeError("a name in quotes is missing", text, start)
        value, at = decoder.raw_decode(text, need(":", skip(at)))
        members.append((name, value, text.count("\n", 0, start) + 1))
        at = skip(at)
    if skip(at + 1) != len(text):
        raise json.JSONDecodeError("something stands behind the closing bracket", text, at + 1)
    return members


# -- values -----------------------------------------------------------------------------------------------------


def _from_text(name: str, text: str) -> Any:
    """What a word of the environment or the command line means for an option."""
    option = BY_NAME.get(name)
    if option is None or (isinstance(option.default, str) and not text.isdigit()):
        return text
    if isinstance(option.default, str):
        return text if name not in ("log_level",) else int(text)
    try:
        return json.loads(text)
    except ValueError:
        return text


def _take(name: str, value: Any, source: str, config: NodeConfig, faults: list[str]) -> None:
    option = BY_NAME.get(name)
    if option is None:
        faults.append(f"{source}: there is no setting {name!r}{_similar(name)}")
        return
    try:
        config.values[name] = Value(_checked(option, value), source)
    except ValueError as error:
        faults.append(f"{source}: {name}: {error}")


def _similar(name: str) -> str:
    from difflib import get_close_matches

    near = get_close_matches(name, BY_NAME, 1)
    return f"; is it {near[0]!r}?" if near else ""


def _checked(option: Option, value: Any) -> Any:
    """The value as the option wants it. Raises ValueError."""
    if option.name == "log_level":
        return _log_level(value)
    if option.name == "cluster_node_list":
        return _nodes(value)
    if option.name == "virtual_queue_list":
        return _virtual(value)
    if isinstance(option.default, str):
        if not isinstance(value, str):
            raise ValueError(f"{value!r} is not a text")
        if option.choices and value not in option.choices:
            raise ValueError(f"{value!r} is none of {', '.join(option.choices)}")
        return value
    if isinstance(value, bool) and option.choices == (0, 1):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{value!r} is not a number")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{value!r} is not a number")
    if isinstance(option.default, int):
        if value != int(value):
            raise ValueError(f"{value!r} is not a whole number")
        value = int(value)
    if option.choices and value not in option.choices:
        raise ValueError(f"{value!r} is none of {', '.join(map(str, option.choices))}")
    if option.minimum is not None and value < option.minimum:
        raise ValueError(f"{_short(value)} is below {option.minimum:g}")
    if option.maximum is not None and value > option.maximum:
        raise ValueError(f"{_short(value)} is above {option.maximum:g}")
    return value


def _short(value: Any) -> str:
    return str(value)[:40]


def _log_level(value: Any) -> str:
    """A word, or a number as the original had it: 0 and 1 are error, 2 warning, 3 info, more is debug."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return ("error", "error", "warning", "info", "debug")[min(value, 4)]
    if isinstance(value, str) and value.lower() in LOG_LEVELS:
        return value.lower()
    raise ValueError(f"{value!r} is none of {', '.join(LOG_LEVELS)}")


def _nodes(value: Any) -> list[dict[str, Any]]:
    if not isinstance(value, list):
        raise ValueError("a list of objects with node_id, host and port is wanted")
    faults: list[str] = []
    for index, node in enumerate(value):
        if not isinstance(node, dict) or not isinstance(node.get("host"), str):
            faults.append(f"entry {index} is not an object with a host")
            continue
        for name, least, most in (("port", 1, 65535), ("node_id", 1, 1_000_000)):
            number = node.get(name, least if name == "node_id" else None)
            if not isinstance(number, int) or isinstance(number, bool) or not least <= number <= most:
                faults.append(f"entry {index}: {name} {number!r} is not a number from {least} to {most}")
    if faults:
        raise ValueError("; ".join(faults))
    return value


def _virtual(value: Any) -> dict[str, list[str]]:
    """An object of lists, or a list of objects with `name` and `queues` (or `queue_list`)."""
    if isinstance(value, list):
        pairs: dict[str, Any] = {}
        for index, one in enumerate(value):
            if not isinstance(one, dict) or not isinstance(one.get("name"), str):
                raise ValueError(f"entry {index} is not an object with a name and its queues")
            pairs[one["name"]] = one.get("queues", one.get("queue_list"))
        value = pairs
    if not isinstance(value, dict):
        raise ValueError("an object of virtual queue to list of real queues is wanted")
    faults = [fault for name, queues in value.items() if (fault := _virtual_fault(name, queues, value)) is not None]
    if faults:
        raise ValueError("; ".join(faults))
    return value


def _virtual_fault(name: str, queues: Any, virtual: dict[str, Any]) -> str | None:
    if not isinstance(queues, list) or not queues or not all(isinstance(queue, str) for queue in queues):
        return f"{name!r} needs a list of real queues"
    for one in (name, *queues):
        fault = "is empty" if not one else name_fault(one)
        if fault is not None:
            return f"the name {one!r} {fault}"
    if len(set(queues)) != len(queues):
        return f"{name!r} names a queue twice"
    if len(queues) > 100:
        return f"{name!r} has {len(queues)} queues, and 100 are allowed"
    nested = [queue for queue in queues if queue in virtual]
    return f"{name!r} names {nested[0]!r}, which is virtual itself" if nested else None


def check_together(config: NodeConfig, faults: list[str]) -> None:
    """Add what is wrong with values that are right one by one."""
    if config["log_prefix"]:
        folder = Path(config["log_prefix"]).parent
        existing = next(parent for parent in (folder, *folder.parents) if parent.exists())
        if not existing.is_dir() or not os.access(existing, os.W_OK):
            faults.append(f"{config.values['log_prefix'].source}: log_prefix: {existing} can't be written to")
    if config["max_data_bytes"] > config["max_request_bytes"]:
        faults.append(
            f"{config.values['max_data_bytes'].source}: max_data_bytes is larger than max_request_bytes "
            f"({config['max_request_bytes']}): no request could carry such a message"
        )
    if config["journal_segment_bytes"] < 4 * config["max_request_bytes"]:
        faults.append(
            f"{config.values['journal_segment_bytes'].source}: journal_segment_bytes must be at least four times "
            f"max_request_bytes ({config['max_request_bytes']})"
        )
    if config["shards"] != 1:
        faults.append(f"{config.values['shards'].source}: shards: this version runs one shard")
    _check_nodes(config, faults)


def _check_nodes(config: NodeConfig, faults: list[str]) -> None:
    """The listed nodes have a number and an address each, and this node is one of them, if any are listed."""
    nodes = config["cluster_node_list"]
    source = config.values["cluster_node_list"].source
    ids = [node.get("node_id", 1) for node in nodes]
    addresses = [(node["host"], node["port"]) for node in nodes]
    if len(set(ids)) < len(ids):
        faults.append(f"{source}: cluster_node_list: a node_id stands there twice")
    if len(set(addresses)) < len(addresses):
        faults.append(f"{source}: cluster_node_list: an address stands there twice")
    for node_id, address in zip(ids, addresses, strict=True):
        if (node_id == config["node_id"]) != (address == (config["host"], config["port"])):
            faults.append(
                f"{source}: cluster_node_list: node {node_id} is at {address[0]}:{address[1]} there, but this is "
                f"node {config['node_id']} at {config['host']}:{config['port']} (port: {config.values['port'].source})"
            )


def other_nodes(config: NodeConfig) -> list[tuple[int, str, int]]:
    """The listed nodes beside this one: number, host, port."""
    nodes = [(node.get("node_id", 1), node["host"], node["port"]) for node in config["cluster_node_list"]]
    return [node for node in nodes if node[0] != config["node_id"]]
