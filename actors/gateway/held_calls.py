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

    def add_returned(self, call: Call, look_at: float, deadline: float) -> None:
        """Hold one that came back undone: behind those of its client that came back as often, and before all others of
        it, which came later. The others of the client move back by one place."""
        self.add(call, look_at, deadline, for_credit=False)
        of_client = NONE if call.is_single else self._of.get(call.client, NONE)
        places = [serial for serial, held in of_client.items() if held.call.returns < call.returns]
        if not places:
            return
        later = [of_client[serial] for serial in places]
        places.append(self._serial)
        for serial, held in zip(places, [of_client[self._serial], *later], strict=True):
            held.serial = serial
            self._all[serial] = of_client[serial] = held

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
