"""Who may knock again, and when: strangers at the nodes' port cost little, however many they are. A machine.

Each address has some tries, which come back with time; so have all strangers together. A try that ends in a proof is
given back, and an address that has proved itself lately does not wait behind strangers.
"""

import ipaddress
from collections import OrderedDict
from typing import Final

TRIES_MAX: Final = 20
TRIES_PER_S: Final = 2.0
"""Of one address."""

STRANGERS_MAX: Final = 100
STRANGERS_PER_S: Final = 20.0
"""Of all addresses that have not proved themselves."""

KNOWN_S: Final = 3600.0
ADDRESSES_MAX: Final = 10_000
"""Addresses that are remembered; beyond that the one is forgotten that has not come for longest."""


class _Tries:
    """What is left, as of a moment (monotonic s)."""

    __slots__ = ("at", "left", "proved_at")

    def __init__(self, now: float, left: float) -> None:
        self.at = now
        self.left = left
        self.proved_at = -KNOWN_S

    def take(self, now: float, most: float, per_s: float) -> bool:
        """Take one, if there is one."""
        self.left = min(self.left + (now - self.at) * per_s, most)
        self.at = now
        if self.left < 1:
            return False
        self.left -= 1
        return True


class Doorkeeper:
    """For one port. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._by_address: OrderedDict[str, _Tries] = OrderedDict()
        self._strangers = _Tries(0.0, STRANGERS_MAX)

    def may_come(self, now: float, address: str) -> bool:
        """Whether somebody from that address is listened to now."""
        name = place_of(address)
        tries = self._by_address.get(name)
        if tries is None:
            if len(self._by_address) >= ADDRESSES_MAX:
                self._by_address.popitem(last=False)
            tries = self._by_address[name] = _Tries(now, TRIES_MAX)
        else:
            self._by_address.move_to_end(name)
        if not tries.take(now, TRIES_MAX, TRIES_PER_S):
            return False
        return now - tries.proved_at < KNOWN_S or self._strangers.take(now, STRANGERS_MAX, STRANGERS_PER_S)

    def proved(self, now: float, address: str) -> None:
        """Who came from there belongs here."""
        tries = self._by_address.get(place_of(address))
        if tries is not None:
            tries.left = min(tries.left + 1, TRIES_MAX)
            tries.proved_at = now


def place_of(address: str) -> str:
    """What counts as one address: of IPv6 the network of 64 bits, which one host has to itself."""
    if ":" not in address:
        return address
    try:
        found = ipaddress.IPv6Address(address.partition("%")[0])
    except ValueError:
        return address
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.IPv6Address(int(found) >> 64 << 64))
