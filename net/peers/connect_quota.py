"""Who may knock again, and when: strangers at the nodes' port cost little, however many they are. A machine.

Each address has some tries, which come back with time; so have all strangers together. A try that ends in a proof is
given back. Addresses that are expected, since nodes are configured there or have proved themselves from there, have
tries of their own that no stranger can use up; only somebody at the same address can.
"""

import ipaddress
from collections import OrderedDict
from collections.abc import Iterable
from typing import Final

TRIES_MAX: Final = 20
TRIES_PER_S: Final = 2.0
"""Of one address."""

EXPECTED_MAX: Final = 200
EXPECTED_PER_S: Final = 200.0
"""Of one that nodes are expected at. A node that comes is let in soon, also beside a flood from its own address."""

STRANGERS_MAX: Final = 100
STRANGERS_PER_S: Final = 20.0
"""Of all other addresses together."""

ADDRESSES_MAX: Final = 10_000
"""Strangers' addresses that are remembered; beyond that the one is forgotten that has not come for longest."""

PROVED_MAX: Final = 1000
"""Addresses from which nodes have proved themselves."""


class _Tries:
    """What is left, as of a moment (monotonic s)."""

    __slots__ = ("_most", "_per_s", "at", "left")

    def __init__(self, now: float, most: float, per_s: float) -> None:
        self._most = most
        self._per_s = per_s
        self.at = now
        self.left = most

    def take(self, now: float) -> bool:
        """Take one, if there is one."""
        self.left = min(self.left + (now - self.at) * self._per_s, self._most)
        self.at = now
        if self.left < 1:
            return False
        self.left -= 1
        return True

    def give_back(self) -> None:
        """Give the place back: it was no stranger's."""
        self.left = min(self.left + 1, self._most)


class ConnectQuota:
    """For one port. `expected` are addresses of nodes; names among them count for nothing. Times are monotonic s."""

    def __init__(self, expected: Iterable[str] = ()) -> None:
        self._strangers = _Tries(0.0, STRANGERS_MAX, STRANGERS_PER_S)
        self._by_address: OrderedDict[str, _Tries] = OrderedDict()
        self._expected = {place_of(one): _Tries(0.0, EXPECTED_MAX, EXPECTED_PER_S) for one in expected}

    def may_come(self, now: float, address: str) -> bool:
        """Whether somebody from that address is listened to now."""
        name = place_of(address)
        expected = self._expected.get(name)
        if expected is not None:
            return expected.take(now)
        tries = self._by_address.get(name)
        if tries is None:
            if len(self._by_address) >= ADDRESSES_MAX:
                self._by_address.popitem(last=False)
            tries = self._by_address[name] = _Tries(now, TRIES_MAX, TRIES_PER_S)
        else:
            self._by_address.move_to_end(name)
        return tries.take(now) and self._strangers.take(now)

    def proved(self, now: float, address: str) -> None:
        """Who came from there belongs here."""
        name = place_of(address)
        expected = self._expected.get(name)
        if expected is not None:
            expected.give_back()
        elif len(self._expected) < PROVED_MAX:
            self._by_address.pop(name, None)
            self._expected[name] = _Tries(now, EXPECTED_MAX, EXPECTED_PER_S)


def place_of(address: str) -> str:
    """Give what counts as one address: of IPv6 the network of 64 bits, which one host has to itself."""
    if ":" not in address:
        return address
    try:
        found = ipaddress.IPv6Address(address.partition("%")[0])
    except ValueError:
        return address
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.IPv6Address(int(found) >> 64 << 64))
