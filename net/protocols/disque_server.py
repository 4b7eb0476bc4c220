"""Disque's commands about the node, its cluster and its clients. What they tell is asked of the node."""

from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import Any, Final

from net.protocols.disque_client import (
    RESP2,
    RESP3,
    SILENT,
    SKIPS,
    SPEAKS,
    SYNTAX,
    DisqueClient,
    Found,
    Made,
    failed,
    whole,
)
from net.protocols.disque_info import INFO_SECTIONS, information
from net.protocols.job_ids import node_hex
from net.protocols.resp_framing import EMPTY, OK, array, bulk, error, integer, simple, strings
from net.protocols.session import Ask, Say
from quorate.node_replies import ClientReply, ConfigReply, DescribeReply, MetricsReply, StatusReply
from quorate.protocol import TOKEN_MAX, Action, Code, ErrorWord, Reply, Request, name_fault
from quorate.queue_replies import ListReply
from quorate.version import VERSION

_OK: Final = int(Code.OK)
DONE: Final = Say(OK)
PROTOCOL: Final = "disque"

PRIORITIES: Final = {"leader": 1, "follower": 2, "unlinked": 5, "silent": 10, "leaving": 100}
"""What a greeting says of a node; clients prefer lower ones."""

SLEEP_MAX_S: Final = 3600


def describe() -> Request:
    """Tell what a node tells of itself and of the others to whoever may do anything at all."""
    return Request(Action.NODE_DESCRIBE)


# -- who is there ------------------------------------------------------------------------------------------------------


def ping(client: DisqueClient, arguments: list[bytes]) -> Found:
    """PING [message]"""
    if len(arguments) > 2:
        return Say(error("ERR wrong number of arguments for 'ping' command"))
    return Say(b"+PONG\r\n" if len(arguments) == 1 else bulk(arguments[1]))


def time(client: DisqueClient, arguments: list[bytes]) -> Found:
    """TIME"""

    def told(reply: Reply) -> Made:
        if not isinstance(reply, DescribeReply):
            return failed(reply)
        seconds, micros = divmod(int(reply.now * 1_000_000), 1_000_000)
        return strings([b"%d" % seconds, b"%d" % micros])

    return Ask(describe(), told)


def _text(argument: bytes) -> str | None:
    try:
        return argument.decode()
    except UnicodeDecodeError:
        return None


def _token(arguments: list[bytes]) -> str | None:
    """Make the token that `[user] password` shows: a name and a secret with a dot between them, however they are
    given."""
    words = [_text(argument) for argument in arguments]
    secret = words[-1]
    if None in words or secret is None or len(secret) > TOKEN_MAX:
        return None
    user = words[0] if len(words) == 2 else None
    token = secret if user is None or secret.startswith(f"{user}.") else f"{user}.{secret}"
    return token if len(token) <= TOKEN_MAX else None


WRONG_PAIR: Final = b"-WRONGPASS invalid username-password pair or user is disabled.\r\n"
WRONG_PASSWORD: Final = b"-ERR invalid password\r\n"


def authenticate(client: DisqueClient, arguments: list[bytes]) -> Found:
    """AUTH [user] token"""
    if len(arguments) > 3:
        return SYNTAX
    wrong = WRONG_PAIR if len(arguments) == 3 else WRONG_PASSWORD
    return _show(arguments[1:], wrong, lambda: OK)


def _show(words: list[bytes], wrong: bytes, then: Any) -> Found:
    token = _token(words)
    if token is None:
        return Say(wrong)

    def judged(reply: Reply) -> Made:
        if reply.code == _OK:
            made: Made = then()
            return made
        return wrong if reply.error == ErrorWord.NOT_AUTHENTICATED else failed(reply)

    return Ask(Request(Action.AUTHENTICATE, token=token), judged)


NO_PROTO: Final = Say(b"-NOPROTO unsupported protocol version\r\n")
NO_NUMBER: Final = Say(b"-ERR Protocol version is not an integer or out of range\r\n")
BAD_HELLO: Final = Say(b"-ERR Syntax error in HELLO\r\n")


def hello(client: DisqueClient, arguments: list[bytes]) -> Found:
    """HELLO, as Disque has it; HELLO 2|3 [AUTH user password] [SETNAME name], as Redis has it."""
    if len(arguments) == 1:
        return Ask(describe(), lambda reply: _greeting(client, reply))
    proto = whole(arguments[1])
    if proto is None:
        return NO_NUMBER
    if proto not in (RESP2, RESP3):
        return NO_PROTO
    if len(arguments) > WORDS_MAX:
        return BAD_HELLO
    shown: list[bytes] | None = None
    name: str | None = None
    at = 2
    while at < len(arguments):
        word = arguments[at].lower()
        if word == b"auth" and at + 2 < len(arguments):
            shown = arguments[at + 1 : at + 3]
            at += 3
        elif word == b"setname" and at + 1 < len(arguments):
            name = client_name(arguments[at + 1])
            if name is None:
                return BAD_NAME
            at += 2
        else:
            return BAD_HELLO

    def greet() -> Made:
        if name is not None:
            client.name = name or None
        asked = Request(Action.CLIENT, command="name" if name is not None else None, consumer=client.name)
        return Ask(asked, lambda reply: _redis_greeting(client, proto, reply))

    if shown is not None:
        return _show(shown, WRONG_PAIR, greet)
    made = greet()
    assert isinstance(made, Ask)
    return made


def _redis_greeting(client: DisqueClient, proto: int, reply: Reply) -> Made:
    if not isinstance(reply, ClientReply):
        return failed(reply)
    client.proto = proto
    values = [
        (b"server", bulk(b"quorate")),
        (b"version", bulk(VERSION.encode())),
        (b"proto", integer(client.proto)),
        (b"id", integer(reply.number)),
        (b"mode", bulk(b"standalone")),
        (b"role", bulk(b"master")),
        (b"modules", EMPTY),
    ]
    parts = b"".join([bulk(name) + value for name, value in values])
    return b"%%%d\r\n%b" % (len(values), parts) if client.proto == RESP3 else b"*%d\r\n%b" % (2 * len(values), parts)


def address_of(row: dict[str, Any]) -> tuple[str, int] | None:
    """Where that node's clients of this protocol go; None: it has no such port, or it is not known."""
    for protocol, host, port in row.get("listeners", ()):
        if protocol == PROTOCOL:
            return host, port
    return None


def _greeting(client: DisqueClient, reply: Reply) -> Made:
    if not isinstance(reply, DescribeReply):
        return failed(reply)
    cluster_id = client.facts.cluster_id
    rows: list[bytes] = []
    for row in reply.nodes:
        at = address_of(row)
        if at is not None:
            shown = [node_hex(cluster_id, row["node_id"]), at[0].encode(), b"%d" % at[1]]
            rows.append(strings([*shown, b"%d" % PRIORITIES.get(row["role"], 5)]))
    return array([integer(1), bulk(node_hex(cluster_id, reply.node_id)), *rows])


# -- clients -----------------------------------------------------------------------------------------------------------

BAD_NAME: Final = Say(b"-ERR Client names cannot contain spaces, newlines or special characters.\r\n")


def client_name(argument: bytes) -> str | None:
    """Read what a client calls itself, "" to have no name; None: it can't be a name."""
    name = _text(argument)
    if name is None or " " in name or name_fault(name) is not None:
        return None
    return name


SPOKEN_TO: Final = Say(OK)
"""What CLIENT REPLY ON is answered with, whatever was said before."""

_SILENCES: Final = {b"on": SPEAKS, b"off": SILENT, b"skip": SKIPS}


def of_client(client: DisqueClient, arguments: list[bytes]) -> Found:
    """CLIENT word ..."""
    word, rest = arguments[1].lower(), arguments[2:]
    if word == b"id" and not rest:
        return _client(None, lambda reply: integer(reply.number))
    if word == b"getname" and not rest:
        return Say(client.nil if client.name is None else bulk(client.name.encode()))
    if word == b"setname" and len(rest) == 1:
        name = client_name(rest[0])
        if name is None:
            return BAD_NAME
        client.name = name or None
        return Ask(Request(Action.CLIENT, command="name", consumer=client.name), _done)
    if word == b"setinfo" and len(rest) == 2:
        return DONE
    if word == b"reply" and len(rest) == 1 and (how := rest[0].lower()) in _SILENCES:
        if how != b"skip" or client.silence != SILENT:
            client.silence = _SILENCES[how]
        return SPOKEN_TO if how == b"on" else DONE
    if word == b"list" and not rest:
        return _client("list", lambda reply: bulk("".join(map(_client_line, reply.clients)).encode()))
    if word == b"kill" and rest:
        return _kill(rest)
    return _unknown(arguments[1])


def _unknown(word: bytes) -> Found:
    return Say(error(f"ERR Unknown subcommand or wrong number of arguments for '{word[:64].decode('latin-1')}'"))


def _client(command: str | None, form: Any, *, key: str | None = None) -> Found:
    def told(reply: Reply) -> Made:
        if not isinstance(reply, ClientReply):
            return failed(reply)
        formed: bytes = form(reply)
        return formed

    return Ask(Request(Action.CLIENT, command=command, key=key), told)


def _done(reply: Reply) -> Made:
    return OK if reply.code == _OK else failed(reply)


def _client_line(row: dict[str, Any]) -> str:
    return (
        f"id={row['number']} addr={row['address']} name={row.get('name') or ''} age={row['age']} "
        f"flags=N protocol={row['protocol']} user={row['principal']}\n"
    )


def _kill(words: list[bytes]) -> Found:
    """CLIENT KILL address, or ID number, or ADDR address."""
    if len(words) == 1:
        named = _text(words[0])
    elif len(words) == 2 and words[0].lower() in (b"id", b"addr"):
        named = _text(words[1])
    else:
        return SYNTAX
    if not named or name_fault(named):
        return Say(b"-ERR No such client\r\n")
    is_counted = len(words) == 2

    def killed(reply: ClientReply) -> bytes:
        if is_counted:
            return integer(len(reply.clients))
        return OK if reply.clients else b"-ERR No such client\r\n"

    return _client("kill", killed, key=named)


# -- the node ----------------------------------------------------------------------------------------------------------


def info(client: DisqueClient, arguments: list[bytes]) -> Found:
    """INFO [section|all]"""
    if len(arguments) > 2:
        return SYNTAX
    wanted = arguments[1].lower().decode("latin-1") if len(arguments) == 2 else "default"
    if wanted not in (*INFO_SECTIONS, "default", "all"):
        return Say(bulk(b""))

    def described(described: Reply) -> Made:
        if not isinstance(described, DescribeReply):
            return failed(described)
        return Ask(Request(Action.NODE_STATUS), lambda reply: with_status(described, reply))

    def with_status(described: DescribeReply, status: Reply) -> Made:
        if not isinstance(status, StatusReply):
            return failed(status)
        return Ask(Request(Action.NODE_METRICS), lambda reply: with_metrics(described, status, reply))

    def with_metrics(described: DescribeReply, status: StatusReply, metrics: Reply) -> Made:
        if not isinstance(metrics, MetricsReply):
            return failed(metrics)
        return bulk(information(client, described, status, metrics, wanted).encode())

    return Ask(describe(), described)


GLOB_MAX: Final = 64
"""What is made of a pattern with many brackets takes very long."""

CONFIG_NAMES: Final = ("maxmemory", "maxclients", "timeout", "loglevel")
"""What CONFIG SET changes until the node starts again."""

WITHOUT_EFFECT: Final = ("hz", "cluster-node-timeout", "appendonly", "appendfsync", "tcp-keepalive", "maxmemory-policy")
UNITS: Final = {"k": 1000, "kb": 1 << 10, "m": 1000**2, "mb": 1 << 20, "g": 1000**3, "gb": 1 << 30, "b": 1, "": 1}
OURS: Final = {
    "maxmemory": "max_memory_bytes",
    "maxclients": "max_connections",
    "timeout": "idle_timeout_s",
    "loglevel": "log_level",
}
LEVELS: Final = {"debug": "debug", "verbose": "info", "notice": "info", "warning": "warning"}


def config(client: DisqueClient, arguments: list[bytes]) -> Found:
    """CONFIG GET glob, SET name value, RESETSTAT, REWRITE"""
    word, rest = arguments[1].lower(), arguments[2:]
    if word == b"get" and len(rest) == 1 and len(rest[0]) > GLOB_MAX:
        return Say(error(f"ERR a pattern of {len(rest[0])} bytes, and {GLOB_MAX} are allowed"))
    if word == b"get" and len(rest) == 1:
        return _config_get(client, rest[0].lower().decode("latin-1"))
    if word == b"set" and len(rest) == 2:
        return _config_set(rest[0].lower().decode("latin-1"), rest[1].decode("latin-1"))
    if word == b"resetstat" and not rest:
        return DONE
    if word == b"rewrite" and not rest:
        return Say(b"-ERR The server is running without a config file\r\n")
    return Say(
        error(f"ERR Unknown subcommand or wrong number of arguments for '{arguments[1][:64].decode('latin-1')}'")
    )


def _config_get(client: DisqueClient, glob: str) -> Found:
    def told(reply: Reply) -> Made:
        if not isinstance(reply, ConfigReply):
            return failed(reply)
        own = reply.options
        port = next((one["port"] for one in own["listeners"] if one["protocol"] == PROTOCOL), own["port"])
        values = {
            "maxmemory": str(own["max_memory_bytes"]),
            "maxclients": str(own["max_connections"]),
            "timeout": f"{own['idle_timeout_s']:g}",
            "loglevel": {"info": "notice", "error": "warning"}.get(own["log_level"], own["log_level"]),
            "port": str(port),
            "bind": own["host"],
            "dir": own["data_dir"],
            "appendonly": "yes",
            "appendfsync": "always" if own["flush"] == "commit" else "everysec",
            "cluster-node-timeout": str(own["election_timeout_ms"]),
            "hz": "10",
            "maxmemory-policy": "acks",
            "tcp-keepalive": "300",
        }
        found = [(name, value) for name, value in values.items() if fnmatchcase(name, glob)]
        parts = b"".join([bulk(name.encode()) + bulk(value.encode()) for name, value in found])
        if client.proto == RESP3:
            return b"%%%d\r\n%b" % (len(found), parts)
        return b"*%d\r\n%b" % (2 * len(found), parts)

    return Ask(Request(Action.NODE_CONFIG), told)


def _for_admins(answer: Callable[[], bytes]) -> Found:
    """Answer who may operate the node."""

    def judged(reply: Reply) -> Made:
        return answer() if reply.code == _OK else failed(reply)

    return Ask(Request(Action.NODE_CONFIG, command="check"), judged)


def _bytes_of(text: str) -> str | None:
    digits = text.rstrip("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
    unit = UNITS.get(text[len(digits) :].lower())
    return str(int(digits) * unit) if digits.isdigit() and len(digits) < 19 and unit is not None else None


def _config_set(name: str, text: str) -> Found:
    invalid = Say(error(f"ERR Invalid argument '{text[:64]}' for CONFIG SET '{name[:64]}'"))
    if name in WITHOUT_EFFECT:
        if name == "appendonly" and text.lower() != "yes":
            return invalid
        return _for_admins(lambda: OK)
    if name not in CONFIG_NAMES:
        return Say(error(f"ERR Unsupported CONFIG parameter: {name[:64]}"))
    value = _bytes_of(text) if name == "maxmemory" else LEVELS.get(text.lower()) if name == "loglevel" else text
    if value is None or (name != "loglevel" and not value.isdigit()) or len(value) > 18:
        return invalid

    def done(reply: Reply) -> Made:
        if reply.error == ErrorWord.FIELD:
            return invalid.data
        return OK if reply.code == _OK else failed(reply)

    return Ask(Request(Action.NODE_CONFIG, command="set", key=OURS[name], value=value), done)


# -- the cluster -------------------------------------------------------------------------------------------------------


def cluster(client: DisqueClient, arguments: list[bytes]) -> Found:
    """CLUSTER word ..."""
    word, rest = arguments[1].lower(), arguments[2:]
    if word in (b"meet", b"forget", b"reset"):
        return Say(error("ERR the cluster's members are changed by qctl cluster add-node and remove-node"))
    if word == b"leaving" and len(rest) <= 1:
        return _leaving(rest)
    if rest:
        return SYNTAX
    if word == b"saveconfig":
        return DONE
    if word == b"myid":
        return Say(bulk(node_hex(client.facts.cluster_id, client.facts.node_id)))
    if word == b"nodes":
        return Ask(describe(), lambda reply: _nodes(client, reply))
    if word == b"info":
        return Ask(describe(), _cluster_info)
    return SYNTAX


def _nodes(client: DisqueClient, reply: Reply) -> Made:
    if not isinstance(reply, DescribeReply):
        return failed(reply)
    lines: list[str] = []
    for row in reply.nodes:
        flags = ["myself"] if row["node_id"] == reply.node_id else []
        flags += {"silent": ["fail?"], "unlinked": ["fail"], "leaving": ["leaving"]}.get(row["role"], [])
        host, port = address_of(row) or ("", 0)
        link = "disconnected" if row["role"] == "unlinked" else "connected"
        shown = node_hex(client.facts.cluster_id, row["node_id"]).decode()
        lines.append(f"{shown} {host}:{port} {','.join(flags) or 'noflags'} 0 0 {link}\n")
    return bulk("".join(lines).encode())


def _cluster_info(reply: Reply) -> Made:
    if not isinstance(reply, DescribeReply):
        return failed(reply)
    others = [row for row in reply.nodes if row["node_id"] != reply.node_id]
    reachable = sum([row["role"] in ("leader", "follower", "leaving") for row in others])
    has_leader = any(row["role"] == "leader" for row in reply.nodes)
    values = {
        "cluster_state": "ok" if has_leader else "fail",
        "cluster_known_nodes": len(reply.nodes),
        "cluster_reachable_nodes": reachable,
        "cluster_size": len(reply.nodes),
        "cluster_stats_messages_sent": reply.said,
        "cluster_stats_messages_received": reply.heard,
    }
    return bulk("".join([f"{name}:{value}\r\n" for name, value in values.items()]).encode())


def _leaving(words: list[bytes]) -> Found:
    word = words[0].lower() if words else None
    if word is not None and word not in (b"yes", b"no"):
        return SYNTAX
    if word is None:

        def told(reply: Reply) -> Made:
            if not isinstance(reply, DescribeReply):
                return failed(reply)
            return simple(b"yes" if reply.is_leaving else b"no")

        return Ask(describe(), told)
    return Ask(Request(Action.NODE_LEAVE, command=word.decode()), _done)


# -- for tests of those who use it -------------------------------------------------------------------------------------

WORDS_MAX: Final = 64
NO_DEBUG: Final = Say(b"-ERR DEBUG is switched off on this listener\r\n")


def debug(client: DisqueClient, arguments: list[bytes]) -> Found:
    """DEBUG FLUSHALL, SLEEP seconds, ERROR message"""
    if not client.debug:
        return NO_DEBUG
    word, rest = arguments[1].lower(), arguments[2:]
    if word == b"error" and rest:
        said = error(" ".join([one.decode("latin-1") for one in rest[:WORDS_MAX]]))
        return _for_admins(lambda: said)
    if word == b"sleep" and len(rest) == 1:
        try:
            seconds = float(rest[0])
        except ValueError:
            return SYNTAX
        if not 0 <= seconds <= SLEEP_MAX_S:
            return SYNTAX
        return Ask(Request(Action.CLIENT, command="sleep", wait=seconds), _done)
    if word == b"flushall" and not rest:
        return _flush_all()
    return SYNTAX


def _flush_all() -> Ask:
    """Remove all queues, some at a time, until a list has none."""

    def listed(reply: Reply) -> Made:
        if not isinstance(reply, ListReply):
            return failed(reply)
        return remove([row.name for row in reply.queue_list])

    def remove(names: list[str]) -> Made:
        if not names:
            return Ask(Request(Action.CLIENT, command="end_waits"), _done)
        asked = Request(Action.REMOVE, names[0])
        return Ask(asked, lambda reply: removed(names[1:], reply))

    def removed(rest: list[str], reply: Reply) -> Made:
        if reply.code != _OK and reply.error != ErrorWord.NO_SUCH_QUEUE:
            return failed(reply)
        return remove(rest) if rest else begin()

    def begin() -> Ask:
        return Ask(Request(Action.LIST, count=100), listed)

    return begin()


def slow_log(client: DisqueClient, arguments: list[bytes]) -> Found:
    """SLOWLOG GET, LEN, RESET: nothing is slow here."""
    word = arguments[1].lower()
    known = {b"get": Say(EMPTY), b"len": Say(integer(0)), b"reset": DONE}
    return known.get(word, SYNTAX)


def latency(client: DisqueClient, arguments: list[bytes]) -> Found:
    """LATENCY LATEST"""
    return Say(EMPTY) if arguments[1].lower() == b"latest" else SYNTAX


NOT_HERE: Final = {
    b"monitor": "ERR MONITOR is not here: qctl log tail shows every change, and the console every request's counts",
    b"shutdown": "ERR SHUTDOWN is not here: qctl node stop, or SIGTERM, ends a node in order",
    b"bgrewriteaof": "ERR BGREWRITEAOF is not here: the log is trimmed all the time, see queue_log_size",
    b"loadjob": "ERR LOADJOB is a special command only processed from AOF",
}


def not_here(client: DisqueClient, arguments: list[bytes]) -> Found:
    """Say what something else does here."""
    return Say(error(NOT_HERE[arguments[0].lower()]))
