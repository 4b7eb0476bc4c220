"""Strangers at the nodes' port: each may try now and then, and all of them together not more than that."""

import pytest

from net.peers.connect_quota import (
    ADDRESSES_MAX,
    EXPECTED_MAX,
    PROVED_MAX,
    STRANGERS_MAX,
    STRANGERS_PER_S,
    TRIES_MAX,
    TRIES_PER_S,
    ConnectQuota,
    place_of,
)


def test_an_address_that_proves_nothing_may_come_less_and_less() -> None:
    doorkeeper = ConnectQuota()
    came = sum(doorkeeper.may_come(0.0, "192.0.2.1") for _ in range(1000))
    assert came == TRIES_MAX
    came = sum(doorkeeper.may_come(10.0, "192.0.2.1") for _ in range(1000))
    assert came == TRIES_PER_S * 10


def test_who_proves_itself_may_come_as_often_as_it_does() -> None:
    doorkeeper = ConnectQuota()
    for n in range(1000):
        assert doorkeeper.may_come(n * 0.001, "192.0.2.1")
        doorkeeper.proved(n * 0.001, "192.0.2.1")


@pytest.mark.parametrize("expected", [["192.0.2.1"], []])
def test_a_thousand_strangers_do_not_keep_out_who_is_expected_or_has_proved_itself(expected: list[str]) -> None:
    doorkeeper = ConnectQuota(expected)
    if not expected:
        assert doorkeeper.may_come(0.0, "192.0.2.1")
        doorkeeper.proved(0.0, "192.0.2.1")
    came = 0
    for n in range(10_000):
        came += doorkeeper.may_come(n * 0.0001, f"10.0.{n % 1000 // 250}.{n % 250}")
        assert n % 100 or doorkeeper.may_come(n * 0.0001, "192.0.2.1")
    assert came <= STRANGERS_MAX + STRANGERS_PER_S
    for n in range(ADDRESSES_MAX + 100):
        doorkeeper.may_come(1e6, f"10.{n >> 16}.{n >> 8 & 255}.{n & 255}")
    assert doorkeeper.may_come(1e6, "192.0.2.1"), "and it is never forgotten"


def test_who_shares_its_address_with_a_flood_is_let_in_soon() -> None:
    doorkeeper = ConnectQuota(["127.0.0.1"])
    tries = 0
    for n in range(60_000):
        came = doorkeeper.may_come(n * 0.001, "127.0.0.1")
        if n > 2000 and n % 700 == 0:  # a node's try among a thousand strangers' a second
            tries += 1
            if came:
                break
    assert tries < 60


def test_no_number_of_addresses_makes_it_remember_more_than_it_may() -> None:
    doorkeeper = ConnectQuota()
    for n in range(ADDRESSES_MAX + 100):
        doorkeeper.may_come(0.0, f"10.{n >> 16}.{n >> 8 & 255}.{n & 255}")
    assert len(doorkeeper._by_address) == ADDRESSES_MAX


def test_who_came_last_is_remembered_longest() -> None:
    doorkeeper = ConnectQuota()
    assert sum(doorkeeper.may_come(0.0, "192.0.2.1") for _ in range(TRIES_MAX + 1)) == TRIES_MAX
    for n in range(ADDRESSES_MAX * 2):
        doorkeeper.may_come(1.0, f"10.{n >> 16}.{n >> 8 & 255}.{n & 255}")
        if n % 100 == 0:
            doorkeeper.may_come(1.0, "192.0.2.1")
    assert "192.0.2.1" in doorkeeper._by_address


def test_so_many_addresses_that_proved_themselves_are_known_and_one_proof_gives_one_try_back() -> None:
    doorkeeper = ConnectQuota(["192.0.2.1"])
    for n in range(PROVED_MAX * 2):
        doorkeeper.proved(0.0, f"10.1.{n >> 8}.{n & 255}")
    assert len(doorkeeper._expected) == PROVED_MAX
    assert sum(doorkeeper.may_come(0.0, "192.0.2.1") for _ in range(EXPECTED_MAX + 1)) == EXPECTED_MAX
    doorkeeper.proved(0.0, "192.0.2.1")
    assert [doorkeeper.may_come(0.0, "192.0.2.1") for _ in range(2)] == [True, False]
    for _ in range(EXPECTED_MAX * 2):
        doorkeeper.proved(0.0, "192.0.2.1")
    assert sum(doorkeeper.may_come(0.0, "192.0.2.1") for _ in range(EXPECTED_MAX * 2)) == EXPECTED_MAX


def test_a_network_of_ipv6_counts_as_one_address() -> None:
    assert place_of("2001:db8::1") == place_of("2001:db8::ffff:2")
    assert place_of("2001:db8::1") != place_of("2001:db8:0:1::1")
    assert place_of("::ffff:192.0.2.1") == "192.0.2.1"
    assert place_of("fe80::1%eth0") == "fe80::"
    assert place_of("nonsense:") == "nonsense:"
