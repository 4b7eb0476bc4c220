"""Ids of jobs: what decides which message is meant, and what is kept of those that were worked out."""

from base64 import b64encode
from hashlib import blake2b

from net.node_facts import NodeFacts
from net.protocols.job_ids import RECENT_MAX, is_well_formed, job_id, msg_id_of
from quorate.protocol import JobFacts

JOB = JobFacts(led_by=1, ttl=86_400, retry=300, nacks=0, additional=0)


def test_an_id_means_its_message_in_its_cluster_alone_also_where_none_is_kept() -> None:
    facts, same, other = NodeFacts(1, 77), NodeFacts(2, 77), NodeFacts(1, 78)
    ids = [number * 1024 + shard for number in range(1, 200) for shard in range(4)]
    told = [job_id(facts, msg_id, JOB) for msg_id in ids]
    assert len(set(told)) == len(ids)
    assert all(map(is_well_formed, told))
    assert [job_id(facts, msg_id, JOB) for msg_id in ids] == told
    assert [job_id(same, msg_id, JOB) for msg_id in ids] == told, "on every node"
    assert [msg_id_of(NodeFacts(3, 77), one) for one in told] == ids
    assert [msg_id_of(other, one) for one in told] == [None] * len(ids)


def test_a_node_that_has_joined_another_cluster_makes_and_takes_that_ones_ids() -> None:
    facts = NodeFacts(1, 77)
    before = job_id(facts, 2048, JOB)
    facts.belong_to(78)
    assert msg_id_of(facts, before) is None
    assert job_id(facts, 2048, JOB) == job_id(NodeFacts(5, 78), 2048, JOB) != before


def test_what_informs_is_that_of_the_job_as_it_is_now() -> None:
    facts = NodeFacts(1, 77)
    first = job_id(facts, 2048, JOB)
    for job, tail in (
        (JobFacts(1, 600, 0, 0, 0), b"-000a"),
        (JobFacts(1, 600, 60, 0, 0), b"-000b"),
        (JobFacts(1, 1e9, 60, 0, 0), b"-ffff"),
    ):
        later = job_id(facts, 2048, job)
        assert later.endswith(tail)
        assert later[11:35] == first[11:35]
        assert msg_id_of(facts, later) == 2048
    assert job_id(facts, 2048, JobFacts(2, 86_400, 300, 0, 0))[2:10] != first[2:10]


def test_few_are_kept() -> None:
    facts = NodeFacts(1, 77)
    for number in range(1, 2 * RECENT_MAX + 10):
        job_id(facts, number * 1024, JOB)
    assert len(facts.job_ids) <= RECENT_MAX
    assert len(facts.messages) <= RECENT_MAX
    for ttl in range(2 * RECENT_MAX):
        job_id(facts, 1024, JobFacts(1, 60.0 * ttl, 0, 0, 0))
    assert len(facts.messages) <= RECENT_MAX, "of one job that reads differently each time"


def test_the_proof_is_keyed_blake2b() -> None:
    packed = (2048).to_bytes(8, "big")
    proof = blake2b(packed, digest_size=10, key=(77).to_bytes(8, "big")).digest()
    assert job_id(NodeFacts(1, 77), 2048, JOB)[11:35] == b64encode(packed + proof)
