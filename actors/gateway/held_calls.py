"""Calls that a Routing holds until there is somewhere to go, in their order, and found by their clients. A machine."""

import math
from dataclasses import dataclass
from typing import Final

from actors.messages.call import Call, Client

NONE: Final[dict[int, "Held"]] = {}


@dataclass(slots=True)
class Held:
    """A call that waits; it is looked at again at `look_at`, and given up at `deadline` (monotonic s).

    `for_credit`: there is somewhere to go, but too much is on its way there. `serial`: its number, in order.
    """

    call: Call
    look_at: float
    deadline: float
    for_credit: bool
    serial: int


class HeldCalls:
    """Of one Routing. All but `late` and `next_at` cost what they give, however much is held."""

    def __init__(self) -> None:
        self._all: dict[int, Held] = {}
        self._of: dict[Client, dict[int, Held]] = {}
        self._serial = 0

    @property
    def has_any(self) -> bool:
        """Whether any call is held."""
        return bool(self._all)

    def add(self, call: Call, look_at: float, deadline: float, *, for_credit: bool) -> None:
        """Hold one more, behind all others."""
        self._serial = serial = self._serial + 1
        held = self._all[serial] = Held(call, look_at, deadline, for_credit, serial)
        if not call.is_single:
            of_client = self._of.get(call.client)
            if of_client is None:
                of_client = self._of[call.client] = {}
            of_client[serial] = held

    def add_returned(self, calls: list[Call], look_at: float, deadlines: list[float]) -> None:
        """Hold those that came back undone. Of each of their clients, calls that came back more often stand first.

        A call that came back more often was asked earlier; calls that came back as often keep their order.
        """
        clients: dict[Client, None] = {}
        for call, deadline in zip(calls, deadlines, strict=True):
            self.add(call, look_at, deadline, for_credit=False)
            if not call.is_single:
                clients[call.client] = None
        for client in clients:
            self._sort(client)

    def _sort(self, client: Client) -> None:
        """Give the places that a client's calls have to them anew, in the order in which they are to be done."""
        of_client = self._of[client]
        wanted = sorted(of_client.values(), key=lambda one: (-one.call.returns, one.serial))
        for serial, one in zip(sorted(of_client), wanted, strict=True):
            one.serial = serial
            self._all[serial] = one
        of_client.clear()
        of_client.update({one.serial: one for one in wanted})

    def remove(self, held: Held) -> None:
        """Hold it no more."""
        del self._all[held.serial]
        client = held.call.client
        of_client = self._of.get(client)
        if of_client is not None and of_client.pop(held.serial, None) is not None and not of_client:
            del self._of[client]

    def has(self, held: Held) -> bool:
        """Whether it still waits."""
        return held.serial in self._all

    def has_of(self, client: Client) -> bool:
        """Whether a call of that client waits, which is not its only one by nature (`is_single`)."""
        return client in self._of

    def is_behind(self, held: Held) -> bool:
        """Whether an earlier call of the same client waits."""
        of_client = NONE if held.call.is_single else self._of.get(held.call.client, NONE)
        return bool(of_client) and next(iter(of_client)) != held.serial

    def of(self, client: Client) -> list[Held]:
        """Those of a client, in order."""
        return [*self._of.get(client, NONE).values()]

    def all(self) -> list[Held]:
        """Every one, in order."""
        return [*self._all.values()]

    def take_all(self) -> list[Call]:
        """Hold none any more; they are the caller's now."""
        calls = [one.call for one in self._all.values()]
        self._all.clear()
        self._of.clear()
        return calls

    def late(self, now: float, most: int) -> list[Held]:
        """Those that have waited for as long as they may, the first `most` of them."""
        found: list[Held] = []
        for one in self._all.values():
            if one.deadline <= now:
                found.append(one)
                if len(found) == most:
                    break
        return found

    def next_at(self) -> float:
        """When one is to be looked at, or given up; infinite if none is held."""
        soonest = math.inf
        for one in self._all.values():
            if one.look_at < soonest:
                soonest = one.look_at
            if one.deadline < soonest:
                soonest = one.deadline
        return soonest
