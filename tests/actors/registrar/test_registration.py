"""What stands in ZooKeeper for a shard: by hand, and by nodes that lead, follow and lose their sessions at random."""

import random
from typing import Any

import pytest

from actors.messages.registering import Op, ReadTree, Refused, TopicFacts, Transact, Transacted, TreeRead
from actors.registrar.registration import (
    AVOIDED_S,
    DOUBT_S,
    RETRY_S,
    SUPERSEDED_S,
    VERIFY_S,
    Place,
    Registration,
    Standing,
    fits_path,
)
from tests.actors.registrar.zoo import Zoo
from tests.cost import calls_of

CLUSTER = 0xABC
TOPICS = {"t": TopicFacts(2), "closed": TopicFacts(1, False, True), "silent": TopicFacts(1, True, False)}


class Host:
    """A node's registration, and its session."""

    def __init__(self, zoo: Zoo, node_id: int = 1, shard: int = 0, root: str = "/meta") -> None:
        self.zoo = zoo
        self.now = 0.0
        self.machine = Registration(Place(root, shard, node_id, f"meta://10.0.0.{node_id}:8123"))
        self.session = self.led = 0
        self.connect()

    def connect(self) -> None:
        self.session = self.zoo.begin()
        self.machine.session(self.now, self.session)

    def expire(self) -> None:
        self.zoo.expire(self.session)
        self.connect()

    def stands(self, standing: Standing, vote_id: int = 1, cluster_id: int = CLUSTER) -> None:
        self.led = vote_id if standing == "leads" else self.led
        self.machine.stands(self.now, standing, vote_id, cluster_id)

    def topics(self, topics: dict[str, TopicFacts]) -> None:
        self.machine.topics_are(self.now, topics)

    def step(self) -> ReadTree | Transact | None:
        """Do what it asks now, if anything."""
        asked = self.machine.next(self.now)
        self.told(self.done(asked))
        return asked

    def done(self, asked: ReadTree | Transact | None) -> TreeRead | Transacted | None:
        if isinstance(asked, ReadTree):
            return self.zoo.read(self.session, asked)
        if asked is None:
            return None
        guard = self.zoo.nodes.get(f"{self.machine.place.root}/brokers/ids/0/quorate")
        answer = self.zoo.transact(self.session, asked)
        touched = [op.path for op in asked.ops if op.path.endswith(("/0-m", "/master", "/quorate"))]
        if guard is not None and touched and answer.refused is None:
            assert int(guard[0].split()[0]) <= self.led, "a leader of the past has changed what a later one registered"
        return answer

    def told(self, answer: TreeRead | Transacted | None) -> None:
        if isinstance(answer, TreeRead):
            self.machine.read(self.now, answer)
        elif answer is not None:
            self.machine.transacted(self.now, answer)

    def settle(self, seconds: float = 0.0) -> int:
        """Go on until nothing is to be done for so long; how often it did something."""
        until, steps = self.now + seconds, 0
        while True:
            if self.step() is not None:
                steps += 1
            elif self.machine.next_at <= until:
                self.now = max(self.now, self.machine.next_at)
            else:
                self.now = until
                return steps


def below(zoo: Zoo, path: str = "/meta/brokers") -> dict[str, str]:
    """All that has data, below that."""
    return {one[len(path) :]: node[0].decode() for one, node in sorted(zoo.nodes.items()) if node[0]}


def led(zoo: Zoo, topics: dict[str, TopicFacts] = TOPICS, node_id: int = 1, vote_id: int = 1) -> Host:
    host = Host(zoo, node_id)
    host.topics(topics)
    host.stands("leads", vote_id)
    host.settle()
    return host


def test_a_leader_registers_its_broker_and_its_topics() -> None:
    zoo = Zoo()
    host = led(zoo)
    address, checksum = "meta://10.0.0.1:8123", below(zoo)["/ids/0/master_config_checksum"]
    assert below(zoo) == {
        "/ids/0": address,
        "/ids/0/master": address,
        "/ids/0/master_config_checksum": checksum,
        "/ids/0/quorate": "1 abc",
        "/topics/closed/0-m": "1",
        "/topics/silent/0-m": "1",
        "/topics/t/0-m": "2",
        "/topics-pub/silent/0-m": '{"numParts":1,"broker":"0-m"}',
        "/topics-pub/t/0-m": '{"numParts":2,"broker":"0-m"}',
        "/topics-sub/closed/0-m": '{"numParts":1,"broker":"0-m"}',
        "/topics-sub/t/0-m": '{"numParts":2,"broker":"0-m"}',
    }
    assert checksum.isdigit()
    assert host.machine.is_whole
    assert host.machine.fault is None
    assert all(zoo.nodes[f"/meta/brokers{path}"][2] == 0 for path in ("/ids/0", "/ids/0/quorate")), "they stay"
    assert zoo.nodes["/meta/brokers/topics/t/0-m"][2] == host.session


def test_every_step_behind_the_claim_begins_with_a_check_of_the_guard() -> None:
    zoo = Zoo()
    host = led(zoo)
    host.topics({"t": TopicFacts(3)})
    host.settle()
    [claim, *later] = [ops for _, ops in zoo.log]
    guard = "/meta/brokers/ids/0/quorate"
    assert Op("create", guard, b"1 abc") in claim
    assert later
    assert all(ops[0] == Op("check", guard, version=0) for ops in later)
    assert below(zoo)["/topics/t/0-m"] == "3"
    assert "/topics/closed/0-m" not in below(zoo)
    host.settle(VERIFY_S - 1)
    before = len(zoo.log)
    del zoo.nodes["/meta/brokers/topics/t/0-m"]  # by hand
    host.settle(2)
    assert below(zoo)["/topics/t/0-m"] == "3"
    assert len(zoo.log) == before + 1


def test_a_follower_registers_itself_as_a_slave_and_takes_that_away_when_it_leads() -> None:
    zoo = Zoo()
    follower = Host(zoo, 2)
    follower.topics(TOPICS)
    follower.stands("follows")
    follower.settle()
    assert follower.machine.fault == "the shard's leader is not registered yet"
    led(zoo)
    follower.settle(RETRY_S)
    told = below(zoo)
    assert told["/ids/0/slave2"] == "meta://10.0.0.2:8123"
    assert told["/topics-sub/t/0-s2"] == '{"numParts":2,"broker":"0-s2"}'
    assert "/topics-sub/silent/0-s2" not in told
    follower.stands("leads", 5)
    follower.settle()
    told = below(zoo)
    assert not [path for path in told if "s2" in path or "slave" in path]
    assert told["/ids/0/master"] == told["/ids/0"] == "meta://10.0.0.2:8123"
    assert told["/ids/0/quorate"] == "5 abc"


def test_a_leader_of_the_past_is_refused_at_each_step() -> None:
    zoo = Zoo()
    old = led(zoo)
    old.topics({**TOPICS, "new": TopicFacts(1)})
    asked = old.machine.next(old.now)
    assert isinstance(asked, Transact)
    new = led(zoo, node_id=2, vote_id=7)
    before = below(zoo)
    old.told(old.done(asked))
    old.settle(60)
    assert below(zoo) == before, "only empty folders are made"
    assert old.machine.fault == "a later leader is registered there"
    assert new.machine.is_whole
    old.stands("follows", 7)
    old.settle()
    assert below(zoo)["/ids/0/slave1"] == "meta://10.0.0.1:8123"
    assert below(zoo)["/ids/0/master"] == "meta://10.0.0.2:8123"


def test_who_leads_no_more_takes_away_what_it_registered_unless_another_claimed() -> None:
    zoo = Zoo()
    host = led(zoo)
    host.stands("unknown")
    host.settle()
    assert below(zoo) == {"/ids/0": "meta://10.0.0.1:8123", "/ids/0/quorate": "1 abc"}
    host.stands("leads", 3)
    host.settle()
    assert below(zoo)["/ids/0/master"]
    other = Host(zoo, 2)
    other.stands("leads", 4)
    assert isinstance(other.step(), ReadTree)
    assert isinstance(other.step(), Transact), "it has claimed, and registered no topic yet"
    host.stands("unknown")
    host.settle()
    assert below(zoo)["/topics/t/0-m"] == "2", "it is the other's to replace"
    other.topics({"t": TopicFacts(9)})
    other.settle()
    assert below(zoo)["/topics/t/0-m"] == "9"
    assert "/topics-sub/closed/0-m" not in below(zoo)
    assert zoo.nodes["/meta/brokers/topics/t/0-m"][2] == other.session


def test_after_an_expired_session_all_is_registered_again() -> None:
    zoo = Zoo()
    host = led(zoo)
    told = below(zoo)
    host.expire()
    assert "/ids/0/master" not in below(zoo)
    host.settle()
    assert below(zoo) == told


def test_a_session_that_is_about_to_expire_keeps_nothing() -> None:
    """A worker that was killed comes again before its session is over: what it registered would go with that."""
    zoo = Zoo()
    before = led(zoo)
    after = led(zoo, vote_id=2)
    told = below(zoo)
    zoo.expire(before.session)
    after.settle()
    assert below(zoo) == told
    assert told["/topics/t/0-m"] == "2"


def test_a_follower_is_in_no_hurry_to_go_when_nobody_leads() -> None:
    zoo = Zoo()
    led(zoo)
    follower = Host(zoo, 2)
    follower.topics(TOPICS)
    follower.stands("follows")
    follower.settle(RETRY_S)
    follower.stands("unknown")
    follower.settle(DOUBT_S - 1)
    assert "/ids/0/slave2" in below(zoo)
    follower.settle(2)
    assert "/ids/0/slave2" not in below(zoo)
    assert "/topics-sub/t/0-s2" not in below(zoo)


def test_another_cluster_is_left_alone() -> None:
    zoo = Zoo()
    led(zoo)
    before = dict(zoo.nodes)
    standings: list[Standing] = ["leads", "follows"]
    for standing in standings:
        stranger = Host(zoo, 3)
        stranger.topics(TOPICS)
        stranger.stands(standing, 99, 0xDEF)
        stranger.settle(SUPERSEDED_S)
        assert zoo.nodes == before
        assert "another cluster" in (stranger.machine.fault or "")
    zoo.nodes["/meta/brokers/ids/0/quorate"] = (b"5", 3, 0)  # no cluster_id: as if of none
    assert Host(zoo, 3).machine.next(0.0) is not None


def test_what_goes_wrong_is_tried_again_from_the_beginning() -> None:
    zoo = Zoo()
    host = Host(zoo)
    host.topics(TOPICS)
    host.stands("leads")
    asked: Any = host.machine.next(host.now)
    host.machine.read(host.now, TreeRead(asked.serial, {}, {}, "no answer"))
    assert host.machine.fault == "no answer"
    assert host.machine.next(host.now) is None
    host.now += RETRY_S
    host.step()
    asked = host.machine.next(host.now)
    host.done(asked)  # it was done, and the answer is lost
    host.machine.transacted(host.now, Transacted(asked.serial, fault="connection lost"))
    host.machine.transacted(host.now, Transacted(asked.serial))  # too late: nobody waits for it
    host.settle(RETRY_S)
    assert host.machine.is_whole
    host.machine.session(host.now, 0)
    assert host.machine.next(host.now) is None
    assert host.machine.next_at == float("inf")


@pytest.mark.parametrize("name", ["master", "master_config_checksum", "0-m", "quorate", "0-s2"])
def test_a_topic_may_be_called_as_nodes_are(name: str) -> None:
    zoo = Zoo()
    zoo.ensure("/meta/brokers/ids/0")  # a broker's of MetaQ's was there
    follower = Host(zoo, 2)
    follower.topics({name: TopicFacts(1)})
    follower.stands("follows")
    follower.settle(5)
    assert below(zoo)[f"/topics-sub/{name}/0-s2"] == '{"numParts":1,"broker":"0-s2"}'
    leader = led(zoo, {name: TopicFacts(1)})
    assert below(zoo)[f"/topics/{name}/0-m"] == "1"
    leader.topics({})
    leader.settle()
    assert f"/topics/{name}/0-m" not in below(zoo)
    assert f"/topics-sub/{name}/0-s2" in below(zoo)


def test_nodes_that_make_the_same_folder_do_not_hinder_each_other() -> None:
    zoo = Zoo()
    leader, follower = led(zoo), Host(zoo, 2)
    follower.topics(TOPICS)
    follower.stands("follows")
    follower.settle(2)
    for host in (leader, follower):
        host.topics({**TOPICS, "new": TopicFacts(1)})
    asked = [host.machine.next(host.now) for host in (leader, follower)]
    for host, one in zip((leader, follower), asked, strict=True):
        assert isinstance(one, Transact)
        answer = host.done(one)
        assert isinstance(answer, Transacted)
        assert answer.refused is None
        host.told(answer)


def test_a_refusal_is_a_fault_when_it_comes_again_and_again() -> None:
    zoo = Zoo()
    host = led(zoo)
    host.topics({})
    faults = []
    for _ in range(4):
        host.now += RETRY_S
        asked = host.machine.next(host.now)
        if isinstance(asked, ReadTree):
            host.told(host.done(asked))
            asked = host.machine.next(host.now)
        assert isinstance(asked, Transact)
        host.machine.transacted(host.now, Transacted(asked.serial, Refused(asked.ops[-1].path, "x")))
        faults.append(host.machine.fault is not None)
    assert faults == [False, False, True, True]
    host.settle(AVOIDED_S + RETRY_S)
    assert host.machine.is_whole
    assert host.machine.fault is None


def test_what_stands_in_the_way_of_one_topic_hinders_no_other() -> None:
    """Somebody's node where a folder is to be, or below a node that is to be replaced."""
    zoo = Zoo()
    stranger = zoo.begin()
    zoo.ensure("/meta/brokers/topics")
    zoo.nodes["/meta/brokers/topics/odd"] = b"", 0, stranger
    zoo.ensure("/meta/brokers/topics-pub/odd2/0-m/child")
    host = Host(zoo)
    host.topics({name: TopicFacts(1) for name in ("a", "odd", "odd2", "z")})
    host.stands("leads")
    host.settle(30)
    there = below(zoo)
    assert {"/topics/a/0-m", "/topics/z/0-m", "/topics-sub/z/0-m", "/topics-sub/odd/0-m"} <= there.keys()
    fault = str(host.machine.fault)
    assert fault.startswith("/meta/brokers/topics")
    assert fault.endswith("can't be registered: it stands otherwise, and 1 more")
    assert not host.machine.is_whole
    host.topics({name: TopicFacts(1) for name in ("a", "odd", "odd2", "z", "late")})
    host.settle(30)
    assert "/topics/late/0-m" in below(zoo)
    for path in ("/meta/brokers/topics/odd", "/meta/brokers/topics-pub/odd2/0-m/child"):
        del zoo.nodes[path]
    host.settle(2 * AVOIDED_S)
    assert {"/topics/odd/0-m", "/topics-pub/odd2/0-m"} <= below(zoo).keys()
    assert str(host.machine.fault) == "None"


def test_a_guard_that_no_node_has_written_is_said_to_be_that() -> None:
    zoo = Zoo()
    zoo.ensure("/meta/brokers/ids/0/quorate")
    host = Host(zoo)
    host.topics({})
    host.stands("leads")
    host.settle(1)
    assert host.machine.fault == "/meta/brokers/ids/0/quorate does not hold what a node writes there: remove it"


def test_no_turn_is_long_with_ten_thousand_topics() -> None:
    """Calls of a turn; 1,000 nodes are looked at in one."""
    zoo = Zoo()
    host = Host(zoo)
    host.topics({f"topic-{number}": TopicFacts(1) for number in range(10_000)})
    host.stands("leads")
    longest = 0
    while not host.machine.is_whole:
        asked: Any = None

        def turn() -> None:
            nonlocal asked
            asked = host.machine.next(host.now)

        longest = max(longest, calls_of(turn))
        host.told(host.done(asked))
    assert longest < 20_000
    assert len(below(zoo)) == 4 + 30_000


def test_a_thousand_topics_take_few_transactions() -> None:
    zoo = Zoo()
    led(zoo, {f"topic-{number}": TopicFacts(1) for number in range(1000)})
    assert len(below(zoo)) == 4 + 3000
    assert len(zoo.log) == 1 + -(-3000 // 300)


@pytest.mark.parametrize(
    ("name", "fits"),
    [("a/b", False), (".", False), ("..", False), ("\ue000", False), ("\U0001f600", False), ("ü x", True)],
)
def test_a_topic_whose_name_is_no_paths_is_left_out(name: str, fits: bool) -> None:
    assert fits_path(name) == fits
    zoo = Zoo()
    host = led(zoo, {name: TopicFacts(1), "t": TopicFacts(1)})
    assert host.machine.is_whole
    assert (f"/topics/{name}/0-m" in below(zoo)) == fits


@pytest.mark.parametrize("seed", range(300))
def test_whatever_happens_the_last_leader_is_registered_in_the_end(seed: int) -> None:
    """Three nodes; leaders change, some do not know yet that they are none, sessions expire, answers come late or
    never, topics come and go. Nobody changes what a later leader has registered."""
    draw = random.Random(seed)
    zoo = Zoo()
    hosts = [Host(zoo, node_id) for node_id in (1, 2, 3)]
    late: list[tuple[Host, ReadTree | Transact]] = []
    topics: dict[str, TopicFacts] = {}
    vote_id, leader, claimed = 1, hosts[0], 0
    leader.stands("leads", vote_id)
    for _ in range(draw.randrange(10, 120)):
        kind = draw.randrange(10)
        host = draw.choice(hosts)
        if kind == 0:
            vote_id += 1
            leader = host
            leader.stands("leads", vote_id)
        elif kind == 1 and host is not leader:
            host.stands(draw.choice(["follows", "unknown"]), vote_id)  # it has heard
        elif kind == 2:
            host.expire()
        elif kind == 3:
            name = draw.choice("abc")
            topics = {one: its for one, its in topics.items() if one != name}
            if draw.random() < 0.7:
                topics[name] = TopicFacts(draw.randrange(1, 4), draw.random() < 0.8, draw.random() < 0.8)
        elif kind == 4:
            host.topics(dict(topics))
        elif kind == 5 and (asked := host.machine.next(host.now)) is not None:
            late.append((host, asked))
        elif kind == 6 and late:
            host, asked = late.pop(draw.randrange(len(late)))
            answer = host.done(asked)  # in whatever session it has by now
            if draw.random() < 0.7:
                host.told(answer)
        elif kind == 7:
            host.now += draw.choice([0.5, RETRY_S, SUPERSEDED_S])
        else:
            host.step()
        guard = zoo.nodes.get("/meta/brokers/ids/0/quorate")
        now_claimed = 0 if guard is None else int(guard[0].split()[0])
        assert now_claimed >= claimed, "the guard never goes back"
        claimed = now_claimed
    for host in hosts:
        host.stands("leads" if host is leader else "follows", vote_id)
        host.topics(dict(topics))
        if draw.random() < 0.5:
            host.expire()
        else:
            host.machine.session(host.now, host.session)  # what is not answered never is
    for _ in range(4):
        for host in hosts:
            host.settle(VERIFY_S + SUPERSEDED_S)
    told, address = below(zoo), f"meta://10.0.0.{leader.machine.place.node_id}:8123"
    assert told["/ids/0/master"] == told["/ids/0"] == address
    slaves = {f"/ids/0/slave{host.machine.place.node_id}" for host in hosts if host is not leader}
    assert {path for path in told if "/slave" in path} == slaves
    masters = {path: data for path, data in told.items() if path.endswith("/0-m")}
    wanted = {f"/topics/{name}/0-m": str(its.partitions) for name, its in topics.items() if any(its[1:])}
    for name, its in topics.items():
        data = f'{{"numParts":{its.partitions},"broker":"0-m"}}'
        wanted |= {f"/topics-pub/{name}/0-m": data} if its.accept_append else {}
        wanted |= {f"/topics-sub/{name}/0-m": data} if its.accept_read else {}
    assert masters == wanted
    readable = [name for name, its in topics.items() if its.accept_read]
    assert len([path for path in told if "-s" in path.rpartition("/")[2]]) == 2 * len(readable)
    assert all(node[2] in {host.session for host in hosts} for node in zoo.nodes.values() if node[2])
