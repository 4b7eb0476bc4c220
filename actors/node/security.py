"""What keeps strangers out, as one node is configured: secrets, certificates, and who may do what.

Loaded by the supervisor, which refuses to start with what can't be used, and by each worker; and again by both when the
configuration is read again. What is open keeps what it has begun with: connections their certificates, links their
secret as long as that is valid.
"""

import os
import ssl
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from actors.gateway.access import AccessTable
from actors.node import config as configuration
from actors.node.config import NodeConfig
from actors.node.private_files import AccessFileError, SecretError, read_access, valid_keys
from net.peers.proof import NONCE_BYTES, Keyring
from net.sockets import is_loopback
from net.tls import TlsError, facts_of, node_contexts, server_context

INSECURE: Final = "insecure_cluster is set: whoever reaches the nodes' port can be a node, read all and change all"
INSECURE_BUT_CERTIFIED: Final = "insecure_cluster is set: no node is asked for the secret, certificates alone count"
DAY_S: Final = 86_400.0
SOON_DAYS: Final = 14.0
"""So long before a certificate ends status and the log say so."""

NO_OPERATOR: Final = "access_file: nobody may operate this node: to mend that the file has to be changed here"
OPEN: Final = "clients of other machines may do everything but change the cluster: there is no access_file"


@dataclass(frozen=True)
class Security:
    """`clients_tls` None: no port of the node speaks TLS. `nodes_tls` are for listening and for dialling.

    `certificates`: by their settings' names until when each is valid (Unix s), where that is known.
    """

    keyring: Keyring
    access: AccessTable
    clients_tls: ssl.SSLContext | None = None
    nodes_tls: tuple[ssl.SSLContext, ssl.SSLContext] | None = None
    warnings: tuple[str, ...] = ()
    certificates: dict[str, float] = field(default_factory=dict)


def load_security(config: NodeConfig) -> tuple[Security, list[str]]:
    """Read what is configured, and every fault in it. With faults the first is not to be used."""
    faults: list[str] = []
    access = AccessTable()
    if config["access_file"]:
        try:
            access = read_access(Path(config["access_file"]))
        except AccessFileError as error:
            faults += [f"access_file: {fault}" for fault in error.faults]
    clients_tls = nodes_tls = None
    wants_tls = config["tls"] or any(one["tls"] for one in config["listeners"])
    if config["tls_cert"]:
        try:
            certificate, ca = Path(config["tls_cert"]), config["tls_client_ca"]
            key = Path(config["tls_key"] or certificate)
            clients_tls = server_context(certificate, key, Path(ca) if ca else None)
        except TlsError as error:
            faults.append(str(error))
    elif wants_tls:
        faults.append("tls: a port that speaks TLS needs tls_cert, and tls_key unless the key is in the same file")
    elif config["tls_key"] or config["tls_client_ca"]:
        faults.append("tls_cert is missing: tls_key and tls_client_ca are nothing without it")
    named = [config[name] for name in ("cluster_tls_cert", "cluster_tls_ca")]
    if all(named):
        try:
            certificate = Path(config["cluster_tls_cert"])
            key = Path(config["cluster_tls_key"] or certificate)
            nodes_tls = node_contexts(certificate, key, Path(config["cluster_tls_ca"]))
        except TlsError as error:
            faults.append(str(error))
    elif any(named) or config["cluster_tls_key"]:
        faults.append("cluster_tls_cert and cluster_tls_ca are both needed, for nodes to prove who they are by TLS")
    keyring = Keyring()
    try:
        keys = valid_keys(config["cluster_secret_file"])
        is_required = bool(keys) and not config["insecure_cluster"]
        keyring = Keyring(keys, is_required, lambda: os.urandom(NONCE_BYTES))
    except SecretError as error:
        faults.append(f"cluster_secret_file: {error}")
    is_proving = bool(keyring.keys) or nodes_tls is not None
    beyond = _beyond_loopback(config)
    if beyond and not is_proving and not config["insecure_cluster"] and not faults:
        faults.append(
            f"cluster_node_list: nodes are reached at {beyond}, which is not on this machine alone, and they would "
            "believe whoever comes: set cluster_secret_file (qctl cluster secret makes one) or cluster_tls_cert, "
            "cluster_tls_key and cluster_tls_ca; or insecure_cluster, if nobody else can reach that address"
        )
    warnings = _warnings(config, beyond, access)
    certificates: dict[str, float] = {}
    if not faults:
        for setting in ("tls_cert", "cluster_tls_cert"):
            if config[setting]:
                warnings += tuple(_of_certificate(config, setting, certificates))
    return Security(keyring, access, clients_tls, nodes_tls, warnings, certificates), faults


def _of_certificate(config: NodeConfig, setting: str, certificates: dict[str, float]) -> Iterator[str]:
    """Warn of an own certificate that nobody will believe, or not for long; note until when it is valid."""
    path = Path(config[setting])
    facts = facts_of(path, Path(config[setting.replace("cert", "key")] or path))
    who = "clients" if setting == "tls_cert" else "other nodes"
    if facts.fault:
        yield f"{setting}: {path}: {facts.fault}: {who} refuse this node"
    if facts.ends_at:
        certificates[setting] = facts.ends_at
        days = (facts.ends_at - time.time()) / DAY_S
        if days < SOON_DAYS:
            yield f"{setting}: {path} ends in {days:.1f} days: {who} refuse this node then"
    own = config["node_id"]
    if setting == "cluster_tls_cert" and not facts.fault and own not in facts.nodes:
        named = ", ".join(map(str, sorted(facts.nodes))) or "none"
        yield f"{setting}: {path} is for node {named}, and this is node {own}: {who} refuse it"


def _beyond_loopback(config: NodeConfig) -> str:
    """Find an address of the nodes' port that is not on this machine alone; empty if there is none."""
    at = configuration.nodes_port(config)
    own = configuration.own_node(config)
    hosts = [one[0] for one in (at, own) if one is not None]
    return next((host for host in hosts if not is_loopback(host)), "")


def _warnings(config: NodeConfig, beyond: str, access: AccessTable) -> tuple[str, ...]:
    """List what status shows and the log says again and again."""
    warnings: list[str] = []
    if config["insecure_cluster"] and config["cluster_node_list"]:
        warnings.append(
            INSECURE if not config["cluster_tls_ca"] else "insecure_cluster is set: no node asks for a secret"
        )
    hosts = [config["host"], *(one["host"] for one in config["listeners"])]
    if access.is_open and any(not is_loopback(host) for host in hosts):
        warnings.append(OPEN)
    if not access.is_open and not access.has_operator:
        warnings.append(NO_OPERATOR)
    if not access.is_open and not config["tls"] and not is_loopback(config["host"]):
        warnings.append("tokens come to the clients' port in the clear: set tls, tls_cert and tls_key")
    for one in config["http_listeners"]:
        if not is_loopback(one["host"]) and not one.get("cert"):
            where = f"{one['host']}:{one['port']}"
            warnings.append(f"http_listeners: {where} is in the clear (insecure_http), and so are tokens there")
    mode = _mode_of(Path(config["data_dir"]))
    if mode & stat.S_IWOTH:
        warnings.append(
            f"data_dir can be written by everybody on this machine (mode {mode:04o}): they can take the place of what "
            "the node trusts there, its log and the sockets between its workers; chmod 700 ends that"
        )
    return tuple(warnings)


def _mode_of(folder: Path) -> int:
    """Read the permissions of a folder; 0 if it is not there yet: the node makes it for its own user alone."""
    try:
        return stat.S_IMODE(folder.stat().st_mode)
    except OSError:
        return 0
