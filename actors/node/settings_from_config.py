"""What the parts of a worker get of the node's configuration, each in the smallest piece; and what clients that operate
a node may see of it, and set until it starts again.

What the whole node may have is shared evenly among its workers, but for `max_connections`: the system spreads those
unevenly, and each worker may have all.
"""

import logging
import resource
import socket
from typing import Any, Final

from actors.cluster.pushing import Lateness
from actors.gateway.listener_limits import REFUSED_MAX, ListenerLimits
from actors.links.contact import shown_address
from actors.node import config as configuration
from actors.node.config import NodeConfig, memory_bytes_max
from actors.node.options import BY_NAME, OPTIONS, ports_of
from actors.node.shard_settings import Registering, ShardSettings
from actors.registrar.registration import Place
from actors.shard.node_view import Limits
from net.clients.connection_contract import ConnectionLimits
from net.node_facts import NodeFacts
from net.peers.messages import LISTENERS_MAX, Listening
from net.protocols.session import RequestLimits
from quorate.version import VERSION
from storage.queue_state import NewQueue
from storage.records import Member

log = logging.getLogger("quorate.worker")

OWN_FILES: Final = 100
"""Descriptors for what is not a client: LMDB, the journal, logs."""

CHANGEABLE: Final = ("max_memory_bytes", "max_connections", "idle_timeout_s", "log_level")

HIDDEN: Final = frozenset({"cluster_secret_file", "tls_key", "cluster_tls_key", "access_file"})
"""No secrets themselves, but where they are."""


def shard_settings(config: NodeConfig, shard: int, own_port: socket.socket | None) -> ShardSettings:
    """Make what a shard's actors get. `own_port`: where clients reach this worker alone."""
    host, port = configuration.own_node(config) or (config["host"], 0)
    client_host, client_port = configuration.client_address(config)
    is_hidden = config["advertise_port"] and not config["shard_port"]  # clients dial something that stands between
    return ShardSettings(
        shard=shard,
        shards=config["shards"],
        direct_port=0 if own_port is None or is_hidden else own_port.getsockname()[1],
        cluster_id=config["cluster_id"],
        log_records_max=config["queue_log_size"],
        reader_records_max=config["log_retention_records"],
        reader_bytes_max=config["log_retention_bytes"],
        log_bytes_max=config["queue_log_bytes"],
        segment_bytes=config["journal_segment_bytes"],
        flush_interval_s=config["flush_interval_ms"] / 1000 if config["flush"] == "interval" else None,
        is_lease_committed=config["lease"] == "committed",
        own=Member(config["node_id"], host, port + shard if port else 0),
        listed=tuple(Member(node_id, at, its + shard) for node_id, at, its in configuration.other_nodes(config)),
        balance_s=config["leader_balance_s"],
        node_type=config["node_type"],
        election_timeout_s=config["election_timeout_ms"] / 1000,
        lateness=Lateness(seconds=config["late_push_ms"] / 1000),
        sync_records_per_s=config["queue_sync_rate"],
        forwards=bool(config["forward_request"]),
        hold_s=config["leader_timeout_s"],
        client_host=client_host,
        client_port=client_port,
        version=VERSION,
        listeners=listening(config, shard),
        facts=NodeFacts(
            config["node_id"],
            shards=config["shards"],
            gmq_ttr_grace_s=config["gmq_ttr_grace_s"],
            gmq_pop_wait_s=config["gmq_pop_wait_s"],
        ),
        registration=registering(config, shard),
    )


def registering(config: NodeConfig, shard: int) -> Registering | None:
    """Say where the shard's broker is registered for MetaQ's clients: the first listener of theirs says it."""
    for one in config["listeners"]:
        if one.get("zookeeper"):
            from actors.registrar.zookeeper import ZooKeeperLane  # what it needs is there only where it is wanted

            address = f"meta://{shown_address(configuration.dialled_host(config, one), one['port'] + shard)}"
            place = Place(one["zookeeper_root"], shard, config["node_id"], address)
            return Registering(place, ZooKeeperLane, (one["zookeeper"],))
    return None


def listening(config: NodeConfig, shard: int) -> tuple[Listening, ...]:
    """All ports for clients of that shard's worker, as they are told to dial them."""
    host, port = configuration.client_address(config)
    found = [Listening("json", host, port)]
    for one in config["listeners"]:
        ports = ports_of(one, config["shards"])
        found.append(Listening(one["protocol"], configuration.dialled_host(config, one), ports[shard % len(ports)]))
    return tuple(found[:LISTENERS_MAX])


def _share(config: NodeConfig, name: str) -> int:
    """Give this worker's share of what the whole node may have."""
    return -(-int(config[name]) // int(config["shards"]))


def broker_limits(config: NodeConfig) -> Limits:
    """Give what a shard takes on: its share of what the node does."""
    return Limits(
        new_queue=NewQueue(config["queue_size"], float(config["default_ttl"]), float(config["default_retry"])),
        queues_max=_share(config, "max_queues"),
        memory_bytes_max=configuration.memory_bytes_max(config) // config["shards"],
        data_bytes_max=config["max_data_bytes"],
        wait_s_max=config["max_wait_s"],
        waiters_max=_share(config, "max_waiters"),
        kept_max=config["kept_max"],
        idle_queue_s=config["idle_queue_s"],
    )


def listener_limits(config: NodeConfig) -> ListenerLimits:
    """Give what this worker's clients may, and make its descriptors suffice for so many of them."""
    links = 2 * config["shards"] * max(len(config["cluster_node_list"]), 1)  # to other workers, and from them
    allowed = _raise_file_limit(config["max_connections"], OWN_FILES + links + REFUSED_MAX)
    if allowed < config["max_connections"]:
        log.warning("max_connections is %d, but the system lets %d be open", config["max_connections"], allowed)
    return ListenerLimits(
        connections_max=allowed,
        requests_max=_share(config, "max_open_requests"),
        held_bytes_max=_share(config, "max_held_bytes"),
        datagram_waits_max=_share(config, "max_datagram_waiters"),
        connection=ConnectionLimits(
            request=RequestLimits(request_bytes_max=config["max_request_bytes"]),
            pipelined_max=config["max_pipelined"],
            partial_s_max=config["request_timeout_s"],
            stalled_s_max=config["stalled_timeout_s"],
            idle_s_max=config["idle_timeout_s"],
            held_bytes_max=config["max_client_bytes"],
        ),
    )


def _raise_file_limit(connections: int, own_files: int) -> int:
    """Let so many connections be open, and the node's own files; returns how many connections may be."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + own_files
    if soft >= wanted:
        return connections
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    return max(allowed - own_files, 1)


def settings_shown(config: NodeConfig) -> dict[str, Any]:
    """All options but where secrets lie, and so much memory as holds."""
    options = {option.name: config[option.name] for option in OPTIONS if option.name not in HIDDEN}
    return {**options, "max_memory_bytes": memory_bytes_max(config)}


def changed_value(name: str, text: str) -> Any:
    """Give the value that `text` sets an option to. Raises ValueError for one that can't be set, or not so."""
    if name not in CHANGEABLE:
        raise ValueError(f"key: {name!r} is none of {', '.join(CHANGEABLE)}")
    option = BY_NAME[name]
    value: Any = text if isinstance(option.default, str) else float(text) if "." in text else int(text)
    return option.checked(value)
