"""What INFO tells: the names that Disque's clients and monitors look for, with this node's numbers."""

import platform
from collections.abc import Mapping
from typing import Any, Final

from net.protocols.disque_client import DisqueClient
from net.protocols.job_ids import node_hex
from quorate.node_replies import DescribeReply, MetricsReply, StatusReply
from quorate.version import VERSION

DISQUE_VERSION: Final = "1.0-rc1"
DAY_S: Final = 86_400
PAGE: Final = 1024.0

Values = Mapping[str, Any]
_SYSTEM: Final = f"{platform.system()} {platform.release()} {platform.machine()}"
_PYTHON: Final = platform.python_version()

INFO_SECTIONS: Final = (
    *("server", "clients", "memory", "jobs", "queues", "persistence", "stats", "cpu"),
    "commandstats",
)
NAMES_OF: Final = {"cpu": "CPU"}


def _human(count: float) -> str:
    for unit in ("B", "K", "M", "G"):
        if count < PAGE:
            return f"{count:.2f}{unit}" if unit != "B" else f"{count:.0f}B"
        count /= PAGE
    return f"{count:.2f}T"


def information(
    client: DisqueClient, described: DescribeReply, status: StatusReply, metrics: MetricsReply, wanted: str
) -> str:
    """Give the sections wanted, each with its name; an empty line between them."""
    rows = [row for row in metrics.shards if "requests" in row]
    made = {
        "server": _server(client, described, status),
        "clients": _clients(status),
        "memory": _memory(status),
        "jobs": {"registered_jobs": sum(row.get("messages", 0) for row in status.shards)},
        "queues": {"registered_queues": sum(row.get("queues", 0) for row in status.shards)},
        "persistence": _persistence(status),
        "stats": _stats(status, rows),
        "cpu": _cpu(rows),
        "commandstats": _commands(rows),
    }
    names = [wanted] if wanted in made else [name for name in made if wanted == "all" or name != "commandstats"]
    return "\r\n".join([_section(name, made[name]) for name in names])


def _section(name: str, values: Values) -> str:
    lines = [f"{key}:{_safe(value)}\r\n" for key, value in values.items()]
    return f"# {NAMES_OF.get(name, name.capitalize())}\r\n{''.join(lines)}"


def _safe(value: Any) -> str:
    """Clients split at these."""
    return "".join([character if character not in "#\r\n" else "_" for character in str(value)])


def _server(client: DisqueClient, described: DescribeReply, status: StatusReply) -> Values:
    uptime_s = int(status.uptime_s)
    return {
        "disque_version": DISQUE_VERSION,
        "disque_git_sha1": "00000000",
        "disque_git_dirty": 0,
        "disque_build_id": "0",
        "os": _SYSTEM,
        "arch_bits": 64,
        "multiplexing_api": "epoll",
        "gcc_version": "0.0.0",
        "process_id": status.pid,
        "run_id": node_hex(client.facts.cluster_id, status.node_id).decode(),
        "tcp_port": _own_port(described),
        "uptime_in_seconds": uptime_s,
        "uptime_in_days": uptime_s // DAY_S,
        "hz": 10,
        "executable": "quorate",
        "config_file": "",
        "quorate_version": VERSION,
        "python_version": _PYTHON,
    }


def _own_port(described: DescribeReply) -> int:
    for row in described.nodes:
        if row["node_id"] == described.node_id:
            return next((port for protocol, _, port in row.get("listeners", ()) if protocol == "disque"), 0)
    return 0


def _clients(status: StatusReply) -> Values:
    return {
        "connected_clients": status.connections,
        "client_longest_output_list": 0,
        "client_biggest_input_buf": 0,
        "blocked_clients": sum(row.get("waiting_consumers", 0) for row in status.shards),
    }


def _memory(status: StatusReply) -> Values:
    used = sum(row.get("data_bytes", 0) for row in status.shards)
    resident = status.resident_bytes
    return {
        "used_memory": used,
        "used_memory_human": _human(used),
        "used_memory_rss": resident,
        "used_memory_peak": resident,
        "used_memory_peak_human": _human(resident),
        "mem_fragmentation_ratio": f"{resident / used:.2f}" if used else "0.00",
        "mem_allocator": "libc",
    }


def _persistence(status: StatusReply) -> Values:
    is_full = any(row.get("disk_full") for row in status.shards)
    return {
        "loading": 0,
        "aof_enabled": 1,
        "aof_state": "on",
        "aof_rewrite_in_progress": 0,
        "aof_rewrite_scheduled": 0,
        "aof_last_rewrite_time_sec": -1,
        "aof_current_rewrite_time_sec": -1,
        "aof_last_bgrewrite_status": "ok",
        "aof_last_write_status": "err" if is_full else "ok",
    }


def _requests(row: Mapping[str, Any]) -> int:
    return sum(sum(results.values()) for results in row["requests"].values())


def _stats(status: StatusReply, rows: list[Any]) -> Values:
    asked = sum(_requests(row) for row in rows)
    uptime_s = max(status.uptime_s, 1.0)
    read, written = (sum(row.get(name, 0) for row in rows) for name in ("bytes_read", "bytes_written"))
    refused = sum(row["limits_reached"].get("max_connections", 0) for row in rows)
    return {
        "total_connections_received": sum(row.get("connections_begun", 0) for row in rows),
        "total_commands_processed": asked,
        "instantaneous_ops_per_sec": int(asked / uptime_s),
        "total_net_input_bytes": read,
        "total_net_output_bytes": written,
        "instantaneous_input_kbps": f"{read / uptime_s / 1024:.2f}",
        "instantaneous_output_kbps": f"{written / uptime_s / 1024:.2f}",
        "rejected_connections": refused,
        "latest_fork_usec": 0,
    }


def _cpu(rows: list[Any]) -> Values:
    used, system = (sum(row.get(name, 0.0) for row in rows) for name in ("cpu_s", "system_s"))
    return {
        "used_cpu_sys": f"{system:.2f}",
        "used_cpu_user": f"{used - system:.2f}",
        "used_cpu_sys_children": "0.00",
        "used_cpu_user_children": "0.00",
    }


def _commands(rows: list[Any]) -> Values:
    calls: dict[str, int] = {}
    micros: dict[str, float] = {}
    for row in rows:
        for name, results in row["requests"].items():
            calls[name] = calls.get(name, 0) + sum(results.values())
        for name, seconds in row["request_seconds"].items():
            micros[name] = micros.get(name, 0.0) + seconds["sum"] * 1e6
    found: dict[str, str] = {}
    for name, count in calls.items():
        spent = micros.get(name, 0.0)
        found[f"cmdstat_{name.replace(' ', '_')}"] = (
            f"calls={count},usec={spent:.0f},usec_per_call={spent / max(count, 1):.2f}"
        )
    return found
