"""The node's configuration: what there is to set, where it came from, and every fault in it at once.

A JSON file, comments (`//`, `/* */`) and a comma before a closing bracket allowed; over it the environment
(`QUORATE_PORT=1112`), over that the command line. Read once, checked once; the parts get what they need of it.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from actors.node.config_file import ConfigError, members, without_comments
from actors.node.options import BY_NAME, GMQ_MONITOR, IGNORED, OPTIONS, RENAMED, is_wildcard, ports_of

ENVIRONMENT_PREFIX: Final = "QUORATE_"

PORT_MAX: Final = 65535
NO_SETTINGS: Final = frozenset(
    {"config", "compile", "cluster_secret", "token", "token_file", "ca", "tls", "url", "watchdog"}
)
"""What else the environment says: a configuration's path, which code runs, the cluster's secret, what clients need."""


@dataclass(frozen=True)
class Value:
    """What holds for an option, and where it was set ("default", "file.json:12", "environment", "command line")."""

    value: Any
    source: str


@dataclass
class NodeConfig:
    """A checked configuration: `config["port"]`. `warnings` are about what was taken, but not as it stands there.

    `until_restart`: what clients have set, which holds in its workers. `contents`: a number for what each file holds
    that it names, as the supervisor has read them.
    """

    values: dict[str, Value] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    until_restart: dict[str, Any] = field(default_factory=dict)
    contents: dict[str, bytes] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Any:
        return self.values[name].value

    def plain(self) -> dict[str, Any]:
        """Names and values alone."""
        return {name: held.value for name, held in self.values.items()} | self.until_restart

    def changes(self, other: "NodeConfig") -> tuple[list[str], list[str]]:
        """Say what `other` sets differently: what can change while running, and what needs a restart."""
        changed = [option for option in OPTIONS if self[option.name] != other[option.name]]
        return [o.name for o in changed if o.is_live], [o.name for o in changed if not o.is_live]


def load(
    path: Path | None = None, environment: Mapping[str, str] | None = None, flags: Mapping[str, Any] | None = None
) -> NodeConfig:
    """Make the configuration out of all that sets it. Raises `ConfigError` with every fault."""
    faults: list[str] = []
    config = NodeConfig({option.name: Value(option.default, "default") for option in OPTIONS})
    if path is not None:
        _take_file(path, config, faults)
    for name, text in (os.environ if environment is None else environment).items():
        option_name = name.removeprefix(ENVIRONMENT_PREFIX).lower()
        if name.startswith(ENVIRONMENT_PREFIX) and option_name not in NO_SETTINGS:
            _take(option_name, _from_text(option_name, text), f"environment {name}", config, faults)
    for name, value in (flags or {}).items():
        if value is not None:
            value = _from_text(name, value) if isinstance(value, str) else value
            _take(name, value, "command line", config, faults)
    _hand_monitors_on(config)
    check_together(config, faults)
    if faults:
        raise ConfigError(faults)
    return config


def _hand_monitors_on(config: NodeConfig) -> None:
    """Give the listeners for who polls gmq's monitor, which are the console's process's."""
    own, monitors = config["listeners"], [one for one in config["listeners"] if one["protocol"] == GMQ_MONITOR]
    if not monitors:
        return
    source = config.values["listeners"].source
    config.values["listeners"] = Value([one for one in own if one["protocol"] != GMQ_MONITOR], source)
    handed_on = [*config["http_listeners"]]
    for one in monitors:
        certificate = {"cert": config["tls_cert"], "key": config["tls_key"]} if one["tls"] else {}
        handed_on.append({"host": one["host"], "port": one["port"], "serves": [GMQ_MONITOR], **certificate})
    config.values["http_listeners"] = Value(handed_on, source)


def restored(values: Mapping[str, Any]) -> NodeConfig:
    """Take a configuration that was checked before, in another process."""
    return NodeConfig({name: Value(value, "supervisor") for name, value in values.items()})


def virtual_queues(config: NodeConfig) -> dict[str, list[str]]:
    """Virtual queue to real queues."""
    return dict(config["virtual_queue_list"])


def memory_bytes_max(config: NodeConfig) -> int:
    """Give the memory for messages (bytes)."""
    asked = int(config["max_memory_bytes"])
    return asked or int(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") * 0.6)


def _take_file(path: Path, config: NodeConfig, faults: list[str]) -> None:
    try:
        text = without_comments(path.read_text(encoding="utf-8"))
        found = list(members(text))
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
    for name, value, line in found:
        if name in seen:
            faults.append(f"{path}:{line}: {name} stands in line {seen[name]} already")
        seen[name] = line
        _take(name, value, f"{path}:{line}", config, faults)


def _from_text(name: str, text: str) -> Any:
    """Say what a word of the environment or the command line means for an option."""
    option = BY_NAME.get(name)
    if option is None or isinstance(option.default, str):
        return int(text) if option is not None and option.parse is not None and text.isdigit() else text
    try:
        return json.loads(text)
    except ValueError:
        return text


def _take(name: str, value: Any, source: str, config: NodeConfig, faults: list[str]) -> None:
    if name in IGNORED:
        config.warnings.append(f"{source}: {name} is not used here: {IGNORED[name]}")
        return
    if name in RENAMED:
        config.warnings.append(f"{source}: {name} is taken as {RENAMED[name]}")
        name = RENAMED[name]
    option = BY_NAME.get(name)
    if option is None:
        faults.append(f"{source}: there is no setting {name!r}{_similar(name)}")
        return
    try:
        config.values[name] = Value(option.checked(value), source)
    except ValueError as error:
        faults.append(f"{source}: {name}: {error}")


def _similar(name: str) -> str:
    near = get_close_matches(name, BY_NAME, 1)
    return f"; is it {near[0]!r}?" if near else ""


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
    _check_clients_ports(config, faults)
    _check_nodes(config, faults)


def _check_clients_ports(config: NodeConfig, faults: list[str]) -> None:
    """Check that no two listeners share a port: the system would give each client to either."""
    source, ports = config.values["listeners"].source, clients_ports(config)
    for index, (host, its) in enumerate(ports):
        for other, others in ports[:index]:
            shared = set(its) & set(others)
            if shared and (host == other or is_wildcard(host) or is_wildcard(other)):
                faults.append(
                    f"{source}: listeners: entry {index - 1} is at {host}:{min(shared)}, where "
                    "clients have another port already"
                )
        if its[-1] > PORT_MAX:
            faults.append(f"{source}: listeners: entry {index - 1} has no {len(its)} ports from {its[0]} on")


def dialled_host(config: NodeConfig, listener: dict[str, Any]) -> str:
    """Give the host at which clients of a listener are told to dial it."""
    at: str = client_address(config)[0] if is_wildcard(listener["host"]) else listener["host"]
    return str(config["advertise_host"] or at)


def clients_ports(config: NodeConfig) -> list[tuple[str, range]]:
    """List the hosts and ports of the main port, and of the listeners."""
    main = config["port"]
    listening = [(one["host"], ports_of(one, config["shards"])) for one in config["listeners"]]
    return [(config["host"], range(main, main + 1)), *listening]


def _check_nodes(config: NodeConfig, faults: list[str]) -> None:
    """Check that the listed nodes have a number and an address each, and this node is one of them, if any are
    listed."""
    listed = config["cluster_node_list"]
    source = config.values["cluster_node_list"].source
    ids = [node.get("node_id", 1) for node in listed]
    addresses = [(node["host"], node["port"]) for node in listed]
    if len(set(ids)) < len(ids):
        faults.append(f"{source}: cluster_node_list: a node_id stands there twice")
    if len(set(addresses)) < len(addresses):
        faults.append(f"{source}: cluster_node_list: an address stands there twice")
    if listed and config["node_id"] not in ids:
        faults.append(f"{source}: cluster_node_list: this is node {config['node_id']}, and it does not stand there")
    _check_ranges(config, faults)
    own = nodes_port(config)
    for host, port in [(host, port) for host, ports in clients_ports(config) for port in ports]:
        is_own = own is not None and own[1] <= port < own[1] + config["shards"]
        if own is not None and is_own and (host == own[0] or is_wildcard(host)):
            faults.append(
                f"{source}: cluster_node_list: node {config['node_id']} would be at {own[0]}:{port}, which is a port "
                "for clients: nodes talk to each other on ports of their own"
            )
    if len(listed) > 1 and is_wildcard(config["host"]) and not config["advertise_host"]:
        faults.append(
            f"{config.values['host'].source}: host: clients of other nodes can't be sent to {config['host']}: "
            "set advertise_host"
        )


def _check_ranges(config: NodeConfig, faults: list[str]) -> None:
    """Check that a node has a port for other nodes for each shard, from its own on: no two on one host may share
    any."""
    source, shards = config.values["cluster_node_list"].source, config["shards"]
    nodes = sorted((node["host"], node["port"], node.get("node_id", 1)) for node in config["cluster_node_list"])
    for (host, port, node_id), (other_host, other_port, other_id) in pairwise(nodes):
        if host == other_host and port < other_port < port + shards:
            faults.append(
                f"{source}: cluster_node_list: with {shards} shards node {node_id} has the ports {port} to "
                f"{port + shards - 1} of {host}, and node {other_id} those from {other_port} on: "
                f"leave {shards} for each"
            )
    beyond = [name for name in ("node_port", "shard_port") if config[name] and config[name] + shards - 1 > PORT_MAX]
    faults += [f"{config.values[name].source}: {name}: {shards} ports are needed from there on" for name in beyond]
    for host, port, node_id in nodes:
        if port + shards - 1 > PORT_MAX:
            faults.append(f"{source}: cluster_node_list: node {node_id} has no {shards} ports from {host}:{port} on")


def other_nodes(config: NodeConfig) -> list[tuple[int, str, int]]:
    """Give the listed nodes beside this one: number, host, port."""
    listed = [(node.get("node_id", 1), node["host"], node["port"]) for node in config["cluster_node_list"]]
    return [node for node in listed if node[0] != config["node_id"]]


def own_node(config: NodeConfig) -> tuple[str, int] | None:
    """Where other nodes reach this one; None for a node that is alone, and opens no port for others."""
    listed = config["cluster_node_list"]
    return next(((node["host"], node["port"]) for node in listed if node.get("node_id", 1) == config["node_id"]), None)


def nodes_port(config: NodeConfig) -> tuple[str, int] | None:
    """Where this node listens for others: where they reach it, unless something stands between."""
    own = own_node(config)
    return None if own is None else (config["node_host"] or own[0], config["node_port"] or own[1])


def client_address(config: NodeConfig) -> tuple[str, int]:
    """Give what clients are told to dial."""
    return config["advertise_host"] or config["host"], config["advertise_port"] or config["port"]


def audit_path(config: NodeConfig, shard: int) -> Path | None:
    """Where the worker of that shard writes down who did what; None: nowhere."""
    if config["audit_log"] == "off":
        return None
    path = Path(config["audit_log"] or Path(config["data_dir"]) / "audit.log")
    return path if config["shards"] == 1 else path.with_name(f"{path.stem}.{shard}{path.suffix}")
