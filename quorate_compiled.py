"""Which of the server's modules are compiled when it is built, and which code a process runs: compiled or interpreted.

The source is one and the same. `setup.py` compiles `MODULES` with mypyc where there is a C compiler; each then has an
extension module beside its file, which Python prefers. All of them or none: compiled modules know each other's
insides. `QUORATE_COMPILE` says what is wanted, of a build and of a process alike:

| value | a build | a process |
|---|---|---|
| unset | compiles if it can | runs what is there |
| 0 | does not compile | runs interpreted, also where extension modules are there |
| 1 | fails if it can't compile | ends if it would not run compiled |

Some of what is usual in Python is slow in compiled code that runs for each request (`perf` and gdb show it): a union in
`isinstance` is made anew with each call, so there it is a tuple; `b"..." in data` raises and catches inside, where a
number or `find` does not; a named tuple, and whatever is not compiled, is made or done by the interpreter. A `cast` to
a compiled class is a check, too.

The packages `actors`, `net` and `storage` call `choose()` before any of their modules is imported.
"""

import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Final

VARIABLE: Final = "QUORATE_COMPILE"
GROUP: Final = "quorate_server"
"""The extension module that holds all compiled code is named after it; the others are doors to it."""

MODULES: Final = (
    "actors.cluster.admin",
    "actors.cluster.checkpointing",
    "actors.cluster.following",
    "actors.cluster.leading",
    "actors.cluster.status_replies",
    "actors.cluster.membership",
    "actors.cluster.progress",
    "actors.cluster.pushing",
    "actors.cluster.replicated_log",
    "actors.cluster.replication",
    "actors.cluster.replicator",
    "actors.disk.log_writer",
    "actors.disk.write_ways",
    "actors.gateway.scatter_gather",
    "actors.messages.measures",
    "actors.gateway.held_calls",
    "actors.gateway.listener",
    "actors.gateway.client_moves",
    "actors.gateway.remote_clients",
    "actors.gateway.listener_limits",
    "actors.gateway.router",
    "actors.gateway.routing",
    "actors.gateway.serving",
    "actors.gateway.sharding",
    "actors.gateway.turns",
    "actors.gateway.under_way",
    "actors.gateway.client_identities",
    "actors.links.contact",
    "actors.links.contacts",
    "actors.links.known_nodes",
    "actors.links.links",
    "actors.messages.answering",
    "actors.messages.call",
    "actors.messages.naming",
    "actors.messages.rights",
    "actors.queues.consuming",
    "actors.queues.idle_queues",
    "actors.queues.named_messages",
    "actors.queues.readers",
    "actors.queues.ripening",
    "actors.shard.asking",
    "actors.shard.lease",
    "actors.shard.machine",
    "actors.shard.totals",
    "actors.shard.admission",
    "actors.shard.own_writes",
    "actors.queues.producing",
    "actors.shard.clocks",
    "actors.shard.appending",
    "actors.shard.broker",
    "actors.queues.handing_out",
    "actors.queues.delivery",
    "actors.runtime.work",
    "actors.shard.block_news",
    "actors.shard.disk_reads",
    "actors.shard.jobs",
    "actors.shard.ledger",
    "actors.shard.leftovers",
    "actors.queues.wait_queues",
    "actors.queues.waiting",
    "actors.queues.listing",
    "actors.queues.message_replies",
    "actors.queues.queries",
    "actors.queues.queue_admin",
    "actors.shard.queue_owner",
    "actors.shard.replicated",
    "actors.shard.log_head",
    "actors.queues.moving",
    "actors.queues.scanning",
    "actors.queues.settling",
    "actors.queues.showing",
    "actors.shard.node_view",
    "actors.shard.owner_stage",
    "actors.shard.topic_facts",
    "actors.shard.put_off",
    "actors.shard.savepoint",
    "actors.streams.committing",
    "actors.streams.coordinator",
    "actors.streams.filters",
    "actors.streams.finding",
    "actors.streams.grouping",
    "actors.streams.groups",
    "actors.streams.places",
    "actors.streams.preparing",
    "actors.streams.reading",
    "actors.streams.topic_admin",
    "actors.streams.views",
    "actors.streams.transactions",
    "actors.streams.writing",
    "actors.runtime.asyncio_runtime",
    "actors.runtime.contract",
    "actors.runtime.commit_delay",
    "actors.runtime.loop_actor",
    "net.clients.connection",
    "net.clients.connection_contract",
    "net.clients.held_bytes",
    "net.clients.open_requests",
    "net.clients.patience",
    "net.clients.reading",
    "net.clients.reading_turn",
    "net.clients.reply_length",
    "net.clients.reply_order",
    "net.clients.resting",
    "net.clients.session_guard",
    "net.clients.strangers_time",
    "net.clients.tcp",
    "net.clients.waiting_requests",
    "net.peers.forwarding",
    "net.peers.link",
    "net.peers.outbox",
    "net.peers.post",
    "net.peers.tcp",
    "net.protocols.session",
    "net.protocols.json_reading",
    "net.protocols.json_transactions",
    "net.protocols.json_session",
    "net.protocols.json_framing",
    "net.protocols.json_payload",
    "net.protocols.json_names",
    "net.protocols.pieces",
    "net.protocols.resp_framing",
    "net.protocols.job_ids",
    "net.protocols.disque_client",
    "net.protocols.disque_jobs",
    "net.protocols.disque_session",
    "net.protocols.gmq_reading",
    "net.protocols.gmq_session",
    "net.protocols.metaq_client",
    "net.protocols.metaq_commits",
    "net.protocols.metaq_framing",
    "net.protocols.metaq_gets",
    "net.protocols.metaq_puts",
    "net.protocols.metaq_reports",
    "net.protocols.metaq_session",
    "net.protocols.metaq_stats",
    "net.protocols.metaq_transactions",
    "storage.partition",
    "storage.prepared",
    "storage.tails",
    "storage.topic_keys",
    "storage.topics",
    "storage.contents",
    "storage.entry_codec",
    "storage.entry_making",
    "storage.far_expiries",
    "storage.journal",
    "storage.journal_writer",
    "storage.line",
    "storage.linux_aio",
    "storage.live_messages",
    "storage.log_rows",
    "storage.log_store",
    "storage.log_tail",
    "storage.message",
    "storage.message_ids",
    "storage.name_buckets",
    "storage.order",
    "storage.queue_state",
    "storage.real_disk",
    "storage.recovery",
    "storage.row_checksums",
    "storage.applying",
    "storage.split_dict",
    "storage.state",
    "storage.stretches",
    "storage.tables",
    "storage.tenures",
    "storage.trimming",
    "storage.undo",
)
"""What a request passes. Not those that define msgspec Structs, which mypyc leaves to the interpreter anyway."""

PACKAGES: Final = ("actors", "net", "storage")
_HERE: Final = Path(__file__).resolve().parent
_SUFFIX: Final = importlib.machinery.EXTENSION_SUFFIXES[0]
_decided: list[str] = []


def source_of(module: str) -> str:
    """Its file, from the folder that holds the packages."""
    return module.replace(".", "/") + ".py"


def why_interpreted() -> str | None:
    """Why this process does not run compiled code; None if it does."""
    if os.environ.get(VARIABLE) == "0":
        return f"{VARIABLE} is 0"
    built = _HERE / f"{GROUP}__mypyc{_SUFFIX}"
    if not built.exists():
        return "it was not compiled"
    if (_HERE / "setup.py").exists():  # a checkout: somebody may have changed a file since
        built_at = built.stat().st_mtime
        sources = (path for package in (*PACKAGES, "quorate") for path in (_HERE / package).rglob("*.py"))
        for path in (Path(__file__).resolve(), *sources):  # all: constants of the others are in the compiled code
            if path.stat().st_mtime > built_at:
                return f"{path.relative_to(_HERE)} was changed since it was compiled: make compiled"
    return None


def choose() -> None:
    """Settle which code this process runs, once. Raises ImportError where compiled code is demanded and not there."""
    if _decided:
        return
    reason = why_interpreted()
    if reason is not None:
        if os.environ.get(VARIABLE) == "1":
            raise ImportError(f"{VARIABLE} is 1, and Quorate can't run compiled: {reason}")
        sys.meta_path.insert(0, _Sources())
    else:
        sys.meta_path.append(_Group())
    _decided.append("compiled" if reason is None else f"interpreted ({reason})")


def running() -> str:
    """Which code runs: "compiled", or "interpreted" and in brackets why."""
    choose()
    return _decided[0]


class _Sources:
    """Finds our packages' files and no extension modules, which would come first otherwise."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """As importlib's finders."""
        if path is None or name.partition(".")[0] not in PACKAGES:
            return None
        sources = (importlib.machinery.SourceFileLoader, importlib.machinery.SOURCE_SUFFIXES)
        found = (importlib.machinery.FileFinder(folder, sources).find_spec(name, target) for folder in path)
        return next((spec for spec in found if spec is not None), None)


class _Group:
    """Finds the extension module that holds all compiled code, also where only a finder of a checkout found ours."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """As importlib's finders."""
        if name != f"{GROUP}__mypyc":
            return None
        return importlib.util.spec_from_file_location(name, _HERE / f"{name}{_SUFFIX}")


if __name__ == "__main__":
    if "--is-compiled" in sys.argv:
        sys.exit(running() != "compiled")
    print(f"quorate runs {running()}")
