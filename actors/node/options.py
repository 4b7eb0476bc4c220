"""What there is to set: one row an option, and how its value is checked."""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Final

from net.protocols import PROTOCOLS
from quorate.protocol import PARTITIONS_MAX, name_fault
from quorate.request_faults import host_fault

LOG_LEVELS: Final = ("debug", "info", "warning", "error")
MIB: Final = 1 << 20


def plain(option: "Option", value: Any) -> Any:
    """Make a word or a number what the option wants. Raises ValueError."""
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
        raise ValueError(f"{_short(value)} is below {option.minimum:.16g}")
    if option.maximum is not None and value > option.maximum:
        raise ValueError(f"{_short(value)} is above {option.maximum:.16g}")
    return value


def _short(value: Any) -> str:
    return str(value)[:40]


def log_level(value: Any) -> str:
    """Take a word, or a number as the original had it: 0 and 1 are error, 2 warning, 3 info, more is debug."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return ("error", "error", "warning", "info", "debug")[min(value, 4)]
    if isinstance(value, str) and value.lower() in LOG_LEVELS:
        return value.lower()
    raise ValueError(f"{value!r} is none of {', '.join(LOG_LEVELS)}")


def nodes(value: Any) -> list[dict[str, Any]]:
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
        if is_wildcard(node["host"]):
            faults.append(f"entry {index}: {node['host']} is no address that other nodes could dial")
        elif (fault := host_fault(node["host"].strip("[]"))) is not None:
            faults.append(f"entry {index}: host {fault}")
    if faults:
        raise ValueError("; ".join(faults))
    return [{**node, "host": node["host"].strip("[]")} for node in value]


def is_wildcard(host: str) -> bool:
    """Whether an address means all of a machine's, so that nobody can dial it."""
    return host.strip("[]") in ("", "0.0.0.0", "::", "*")


GMQ_MONITOR: Final = "gmq-monitor"
"""No protocol of a worker's: the console's process answers there. It may stand among `listeners` all the same."""

LISTENERS_PORTS: Final = {**{name: one.port for name, one in PROTOCOLS.items()}, GMQ_MONITOR: 8000}


METAQ: Final = "metaq"
METAQ_FIELDS: Final[dict[str, Any]] = {
    "auto_create": False,
    "auto_create_partitions": 1,
    "zookeeper": "",
    "zookeeper_root": "/meta",
}
"""What a listener of MetaQ's may have beside what all have, and what it is if it is left out."""


def listeners(value: Any) -> list[dict[str, Any]]:
    """Objects with protocol, host, port, tls and debug; all but a JSON port may be left out."""
    if not isinstance(value, list):
        raise ValueError("a list of objects with protocol, host, port and tls is wanted")
    found: list[dict[str, Any]] = []
    for index, one in enumerate(value):
        fields = ["protocol", "host", "port", "tls", "debug"]
        fields += METAQ_FIELDS if isinstance(one, dict) and one.get("protocol") == METAQ else ()
        if not isinstance(one, dict) or set(one) - set(fields):
            raise ValueError(f"entry {index} is not an object with {', '.join(fields[:-1])} and {fields[-1]}")
        protocol, host = one.get("protocol", "json"), one.get("host", "127.0.0.1")
        if protocol not in LISTENERS_PORTS:
            raise ValueError(f"entry {index}: protocol {protocol!r} is none of {', '.join(LISTENERS_PORTS)}")
        port = one.get("port", None if protocol == "json" else LISTENERS_PORTS[protocol])
        if not isinstance(host, str) or not isinstance(port, int) or not 1 <= port <= 65535:
            raise ValueError(f"entry {index}: a host and a port from 1 to 65535 are wanted")
        tls, debug = one.get("tls", False), one.get("debug", False)
        if not isinstance(tls, bool) or not isinstance(debug, bool):
            raise ValueError(f"entry {index}: tls and debug are true or false")
        listener = {"protocol": protocol, "host": host.strip("[]"), "port": port, "tls": tls, "debug": debug}
        found.append({**listener, **(_metaq(index, one) if protocol == METAQ else {})})
    return found


def _metaq(index: int, one: dict[str, Any]) -> dict[str, Any]:
    """Check what a listener of MetaQ's has of its own. Raises ValueError."""
    its = {name: one.get(name, usual) for name, usual in METAQ_FIELDS.items()}
    if not isinstance(its["auto_create"], bool):
        raise ValueError(f"entry {index}: auto_create is true or false")
    count = its["auto_create_partitions"]
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= PARTITIONS_MAX:
        raise ValueError(f"entry {index}: auto_create_partitions is {count!r}: from 1 to {PARTITIONS_MAX} are wanted")
    hosts, root = its["zookeeper"], its["zookeeper_root"]
    if not isinstance(hosts, str) or (hosts and not all(map(_is_address, hosts.split(",")))):
        raise ValueError(f"entry {index}: zookeeper is {hosts!r}: host:port is wanted, or several, divided by commas")
    if not isinstance(root, str) or (root and not _PATH.fullmatch(root)):
        raise ValueError(f"entry {index}: zookeeper_root is {root!r}: a path like /meta is wanted, or nothing")
    if hosts and find_spec("kazoo") is None:
        raise ValueError(
            f"entry {index}: zookeeper needs a package that is not there: pip install 'quorate-server[metaq]'"
        )
    return its


_PATH: Final = re.compile(r"(?:/[A-Za-z0-9_.-]*[A-Za-z0-9_-][A-Za-z0-9_.-]*)+", re.ASCII)


def _is_address(text: str) -> bool:
    host, _, port = text.rpartition(":")
    is_port = port.isascii() and port.isdigit() and len(port) <= 5 and 1 <= int(port) <= 65535
    return bool(host) and host_fault(host.strip("[]")) is None and is_port


def ports_of(listener: dict[str, Any], shards: int) -> range:
    """Give the ports of a listener: one, or, where each shard has its own, one after the other."""
    is_by_shard = listener["protocol"] in PROTOCOLS and PROTOCOLS[listener["protocol"]].is_by_shard
    return range(listener["port"], listener["port"] + (shards if is_by_shard else 1))


HTTP_FIELDS: Final = {
    "host": str,
    "port": int,
    "serves": list,
    "hosts": list,
    "cert": str,
    "key": str,
    "insecure_http": bool,
}
HTTP_DEFAULT: Final = ("console", "metrics", "health")
HTTP_SERVES: Final = (*HTTP_DEFAULT, GMQ_MONITOR)


def http_listeners(value: Any) -> list[dict[str, Any]]:
    """Objects with host, port, serves, hosts, cert, key and insecure_http; all of them may be left out."""
    if not isinstance(value, list):
        raise ValueError(f"a list of objects with {', '.join(HTTP_FIELDS)} is wanted")
    found: list[dict[str, Any]] = []
    for index, one in enumerate(value):
        if not isinstance(one, dict) or set(one) - set(HTTP_FIELDS):
            raise ValueError(f"entry {index} is not an object with {', '.join(HTTP_FIELDS)}")
        for name, kind in HTTP_FIELDS.items():
            if name in one and not isinstance(one[name], kind):
                raise ValueError(f"entry {index}: {name} is {one[name]!r}: {kind.__name__} is wanted")
        listener = {"host": "127.0.0.1", "port": 1180, "serves": list(HTTP_DEFAULT), **one}
        if not 1 <= listener["port"] <= 65535:
            raise ValueError(f"entry {index}: a port from 1 to 65535 is wanted")
        if not listener["serves"] or set(listener["serves"]) - set(HTTP_SERVES):
            raise ValueError(f"entry {index}: serves some of {', '.join(HTTP_SERVES)}")
        found.append({**listener, "host": listener["host"].strip("[]")})
    return found


def virtual_queues(value: Any) -> dict[str, list[str]]:
    """Take an object of lists, or a list of objects with `name` and `queues` (or `queue_list`)."""
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


@dataclass(frozen=True)
class Option:
    """One thing to set. `choices` for words, `minimum` and `maximum` for numbers; `is_live`: SIGHUP changes it.

    `parse` checks what is neither a word nor a number, and raises ValueError.
    """

    name: str
    default: Any
    meaning: str
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[Any, ...] = ()
    is_live: bool = False
    parse: Callable[[Any], Any] | None = None

    @property
    def bounds(self) -> str:
        """What a number may be, in words; empty for what is none."""
        if self.choices or self.minimum is None:
            return ""
        least = f"{self.minimum:.16g}"
        return f"{least} or more" if self.maximum is None else f"{least} to {self.maximum:.16g}"

    def checked(self, value: Any) -> Any:
        """Make the value what this option wants. Raises ValueError."""
        return plain(self, value) if self.parse is None else self.parse(value)


OPTIONS: Final = (
    Option("data_dir", "./quorate-data", "the folder with all that the node keeps"),
    Option("host", "127.0.0.1", "the address that the node listens on for clients"),
    Option("port", 1111, "the port for clients, TCP and UDP", 1, 65535),
    Option("node_id", 1, "this node's number in its cluster", 1, 1_000_000),
    Option("node_type", 1, "the cluster's number", 0, 2**31 - 1),
    Option("shards", 1, "parts of the queues, each with a log and a process of its own", 1, 256),
    Option(
        "leader_balance_s",
        10.0,
        "with several shards, after this another node that leads a shard gives it to the one that should; 0: never",
        0.0,
        86_400.0,
    ),
    Option(
        "shard_port",
        0,
        "with several shards, that of shard k has this port + k for clients that know the map; 0: a free one, kept",
        0,
        65279,
    ),
    Option("log_prefix", "", "log lines go to this path with .log behind it; empty: to standard error"),
    Option("log_level", "info", "the least level that is logged", choices=LOG_LEVELS, is_live=True, parse=log_level),
    Option("log_format", "text", "how: lines to read, or an object of JSON each", choices=("text", "json")),
    Option("queue_size", 0, "messages that a queue takes unless it is configured; 0: no limit", 0, 2**53, is_live=True),
    Option(
        *(
            "default_ttl",
            3600.0,
            "so long (s) after they are due messages of a queue that is not configured expire, or as they say",
        ),
        *(0.001, 31_536_000),
        is_live=True,
    ),
    Option(
        *(
            "default_retry",
            0.0,
            "so long (s) an unconfirmed delivery there is waited for before it is repeated; 0: at most once",
        ),
        *(0, 31_536_000),
        is_live=True,
    ),
    Option("queue_log_size", 1_000_000, "records that the change log keeps", 100, 10**9),
    Option("queue_log_bytes", 4096 * MIB, "bytes of the log at most, whatever queue_log_size says", MIB, 2**53),
    Option("log_retention_records", 10_000_000, "as many are kept for the log's named readers", 100, 10**10),
    Option("log_retention_bytes", 8192 * MIB, "so much of the log (bytes) at most is kept for them", MIB, 2**53),
    Option("queue_sync_rate", 100_000, "records a second that a node behind pulls (cluster)", 1, 10**9),
    Option("election_timeout_ms", 400, "the least time without a leader before a node acts (cluster)", 100, 60_000),
    Option(
        "late_push_ms",
        10,
        "how long entries may wait for a follower whom no majority needs; 0: each goes to all at once (cluster)",
        0,
        100,
    ),
    Option("forward_request", 1, "a node that does not lead: 1 forwards, 0 redirects (cluster)", choices=(0, 1)),
    Option(
        "cluster_node_list",
        [],
        "the cluster's nodes, this one too (cluster): objects with node_id, host and port, which are the nodes' own",
        parse=nodes,
    ),
    Option("node_host", "", "where the nodes' port listens (cluster); empty: the address in cluster_node_list"),
    Option("node_port", 0, "as node_host; 0: the port in cluster_node_list", 0, 65535),
    Option("advertise_host", "", "what clients are told to dial; empty: host"),
    Option("advertise_port", 0, "what clients are told to dial; 0: port", 0, 65535),
    Option("listeners", [], "more ports for clients: objects with protocol, host, port and tls", parse=listeners),
    Option(
        "http_listeners",
        [],
        "console, metrics and health by HTTP: objects with host, port, serves, hosts, cert, key (docs/console.md)",
        parse=http_listeners,
    ),
    Option("http_queues_max", 1000, "queues that /metrics/queues tells of by name", 1, 100_000),
    Option("http_ca", "", "the authority of this node's certificate, for its console where tls is 1"),
    Option("tls", 0, "1: clients' TCP port speaks TLS alone, and there is no UDP port beside it", choices=(0, 1)),
    Option("tls_cert", "", "the certificate, and those between it and its authority, for clients (PEM)", is_live=True),
    Option("tls_key", "", "the certificate's key (PEM); empty: it is in tls_cert", is_live=True),
    Option("tls_client_ca", "", "the authority whose certificates clients may show to say who they are", is_live=True),
    Option(
        "access_file", "", "who may do what (TOML, see docs/security.md); empty: everybody everything", is_live=True
    ),
    Option("audit_log", "", "where it is written who did what; empty: audit.log in data_dir; off: nowhere"),
    Option("cluster_secret_file", "", "the secret that the cluster's nodes share (cluster)", is_live=True),
    Option("cluster_tls_cert", "", "this node's certificate, for node-N, N being its number (cluster)", is_live=True),
    Option("cluster_tls_key", "", "its key; empty: it is in cluster_tls_cert (cluster)", is_live=True),
    Option("cluster_tls_ca", "", "the authority of all nodes' certificates (cluster)", is_live=True),
    Option(
        "insecure_cluster",
        0,
        "1: nodes need not prove anything to each other: whoever reaches their port can be one (cluster)",
        choices=(0, 1),
        is_live=True,
    ),
    Option(
        "virtual_queue_list",
        {},
        "virtual queues: an object of name to list of real queues; the same on every node",
        is_live=True,
        parse=virtual_queues,
    ),
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
    Option("max_datagram_waiters", 1000, "consumers that wait for a datagram", 0, 1_000_000, is_live=True),
    Option(
        "datagram_reply_factor",
        10,
        "a reply by UDP to another machine is at most so many times its request; 0: any size",
        0,
        65_507,
    ),
    Option("max_wait_s", 3600.0, "how long a consumer may ask to wait (s)", 0, 31_536_000, is_live=True),
    Option("max_queues", 100_000, "queues", 1, 10_000_000, is_live=True),
    Option(
        "idle_queue_s",
        300.0,
        "so long (s) a queue stays that a job made, and nobody configured, when it is empty and unused; 0: for ever",
        *(0.0, 31_536_000),
        is_live=True,
    ),
    Option(
        "kept_max",
        100_000,
        "messages that a shard keeps though they were delivered, at most once, until they are confirmed or expire",
        *(1, 10_000_000),
        is_live=True,
    ),
    Option("gmq_ttr_grace_s", 3.0, "so much longer than its TTR (s) a job of gmq's may take", 0.0, 86_400),
    Option("gmq_pop_wait_s", 2.0, "so long (s) a Pop of gmq's waits where no job is ready", 0.0, 3600),
    Option("max_memory_bytes", 0, "memory for messages; 0: 60 % of the machine's", 0, 2**53, is_live=True),
    Option(
        "max_held_bytes",
        512 * MIB,
        "what all clients make the node hold: unfinished and open requests, unread replies (bytes)",
        MIB,
        2**53,
        is_live=True,
    ),
    Option("max_client_bytes", 32 * MIB, "the same for one client: with more it is not read", MIB, 2**53, is_live=True),
    Option("leader_timeout_s", 4.0, "how long a request waits for a leader (s) (cluster)", 0, 3600),
    Option("request_timeout_s", 30.0, "how long a request may take to come in whole (s)", 0.1, 86_400, is_live=True),
    Option("stalled_timeout_s", 60.0, "how long a client may leave replies unread (s)", 0.1, 86_400, is_live=True),
    Option("idle_timeout_s", 0.0, "how long a client may say nothing (s); 0: for ever", 0, 31_536_000, is_live=True),
    Option("journal_segment_bytes", 16 * MIB, "size of a journal segment; there are two or three", MIB, 1024 * MIB),
)

BY_NAME: Final = {option.name: option for option in OPTIONS}

IGNORED: Final = {
    "queue_data_blocks": "the log grows as it needs to",
}
"""What the original has, and this one has no use for: why."""

RENAMED: Final = {
    "queue_data_dir": "data_dir",
    "max_partial_bytes": "max_held_bytes",
    "max_unsent_bytes": "max_held_bytes",
}
"""What the original calls otherwise, and what an earlier version did."""
