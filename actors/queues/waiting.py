"""What ends a wait, but for what it waits for: its client, its time, its rights. A base of machines with lines."""

from actors.messages.call import Call, Client
from actors.messages.rights import Principal, not_allowed
from actors.queues.wait_queues import Waiter, WaitQueues
from actors.shard.ledger import Ledger
from actors.shard.machine import Machine


class Waiting(Machine):
    """Of one shard. A machine says which its `lines` are, and how a wait ends whose time is over."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    @property
    def lines(self) -> WaitQueues:
        """Who waits."""
        raise NotImplementedError  # abstract: they are where those who count all waits find them, under its own name

    def end_wait(self, waiter: Waiter) -> None:
        """Take a waiter out of line, and answer that what it waits for is not there."""
        raise NotImplementedError  # abstract: each action has an answer of its own

    def cancel(self, client: Client, seq: object) -> bool:
        """End the wait of that client's request, as if its time were over; whether it waited."""
        waiter = self.lines.find(client, seq)
        if waiter is None:
            return False
        self._ledger.has_begun = True  # another call ends with this one: half of that can't be taken back
        self.end_wait(waiter)
        return True

    def withdraw(self, call: Call) -> None:
        """Out of all lines."""
        self.lines.withdraw(call)

    def forget(self, client: Client) -> None:
        """They are answered that it is not there."""
        for waiter in self.lines.of_client(client):
            self.end_wait(waiter)

    def rejudge(self, client: Client, principal: Principal) -> None:
        """Refuse what the client waits for and has no right to any more."""
        for waiter in self.lines.of_client(client):
            waiter.call.principal = principal
            missing = principal.rights.missing(waiter.call.request)
            if missing is not None:
                self.lines.leave(waiter)
                self._ledger.answer(waiter.call, not_allowed(waiter.call.request, missing))
