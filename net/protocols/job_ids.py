"""Ids of jobs and nodes as Disque's clients know them: `D-pppppppp-bbbbbbbbbbbbbbbbbbbbbbbb-tttt`, and 40 hex digits.

| part | what it tells |
|---|---|
| p | the first 8 digits of the id of the node that led when the job was made |
| b | base64 of its msg_id and ten bytes of BLAKE2b of that, keyed with the cluster's id: these decide which it is |
| t | the time to live in whole minutes, 4 hex digits; odd where the job may come more than once |

They fit no other cluster's message by accident. They are no secret: who may read a message may read its id.
"""

from base64 import b64decode
from binascii import Error, b2a_base64
from functools import lru_cache
from hashlib import blake2b, sha1
from typing import Final

from net.node_facts import NodeFacts
from quorate.protocol import MSG_ID_MAX, JobFacts

ID_BYTES: Final = 40
LETTER: Final = ord("D")
DASH: Final = ord("-")
RECENT_MAX: Final = 1024
"""So many ids are kept as they were worked out; all go when there would be more: more of them miss the caches."""

PROOF_BYTES: Final = 10
MINUTES_MAX: Final = 0xFFFF
MS: Final = 1000


@lru_cache(maxsize=1024)
def node_hex(cluster_id: int, node_id: int) -> bytes:
    """Make a node's id: 40 lower-case hex digits, the same for ever."""
    named = f"quorate:{cluster_id:x}:{node_id}".encode()
    return sha1(named, usedforsecurity=False).hexdigest().encode()


def _proof(facts: NodeFacts, packed: bytes) -> bytes:
    if facts.keyed is None:
        facts.keyed = blake2b(digest_size=PROOF_BYTES, key=facts.cluster_id.to_bytes(8, "big"))
    made = facts.keyed.copy()  # the key is taken in already
    made.update(packed)
    return bytes(made.digest())


def job_id(facts: NodeFacts, msg_id: int, job: JobFacts) -> bytes:
    """Make the id of a message as a job."""
    ttl, retry = job.ttl, job.retry
    key = msg_id ^ msg_id >> 10  # one to one; ids end in the same ten bits, and would collide in a dict
    known = facts.job_ids.get(key)
    if known is not None and known[0] == ttl and known[1] == retry and known[2] == job.led_by:
        return known[3]
    packed = msg_id.to_bytes(8, "big")
    minutes = min(round(ttl * MS) // (60 * MS), MINUTES_MAX)
    minutes = minutes | 1 if retry else minutes & ~1
    body = b2a_base64(packed + _proof(facts, packed), newline=False)  # b64encode is interpreted
    made = b"D-%b-%b-%04x" % (node_hex(facts.cluster_id, job.led_by)[:8], body, minutes)
    if len(facts.messages) >= RECENT_MAX:  # a job is asked about soon after it was told of, mostly
        facts.job_ids.clear()
        facts.messages.clear()
    facts.job_ids[key] = (ttl, retry, job.led_by, made)
    facts.messages[made] = msg_id
    return made


def is_well_formed(given: bytes) -> bool:
    """Whether it looks like a job's id."""
    return len(given) == ID_BYTES and given[0] == LETTER and given[1] == given[10] == given[35] == DASH


def msg_id_of(facts: NodeFacts, given: bytes) -> int | None:
    """Find the message that a well-formed id means; None: it means nothing here."""
    known = facts.messages.get(given)
    if known is not None:
        return known
    try:
        decoded = b64decode(given[11:35], validate=True)
    except (Error, ValueError):
        return None
    packed = decoded[:8]
    if len(decoded) != 8 + PROOF_BYTES or decoded[8:] != _proof(facts, packed):
        return None
    msg_id = int.from_bytes(packed, "big")
    return msg_id if 0 < msg_id <= MSG_ID_MAX else None
