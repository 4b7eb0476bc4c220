"""Which calls may be done now, and what becomes of the others. A part of the QueueOwner, which says whose they are.

A node that serves does all that there is room for; it puts off what one turn has no time for, and what strangers ask
for beyond their part of it. One that is about to serve holds what comes until then, and so does a leader whose lease
is over until a majority is heard: another may lead by now, and what it did would be undone. Whatever else it does
meanwhile does not leave for the log (`Appender`), so that no outcome is unknown for it. All others answer only what
is asked about themselves, and give the rest back to the Router, which finds out who leads.
"""

from collections.abc import Callable

from actors.messages.call import Call, Client, consumes, note_late, nothing_for
from actors.messages.calls import Returned, RightsChanged
from actors.messages.mailbox import Mailbox
from actors.messages.mailboxes import ToRouter
from actors.messages.rights import Principal, not_allowed
from actors.shard.broker import Broker
from actors.shard.failed_calls import FailedCalls
from actors.shard.jobs import Jobs
from actors.shard.ledger import Ledger
from actors.shard.owner_stage import OwnerStage
from actors.shard.put_off import Departures, PutOff, StrangersSlice, some_are_strangers
from quorate.actions import ASKS_NODE
from quorate.protocol import Action, ErrorWord, refusal

READS_AGAIN = "this node reads its data again, since it lost its place as leader"
STOPS = "the node is stopping"
OF_QUEUES = (Action.NODE_MONITOR, Action.NODE_LIST, Action.READ)
"""Of what is asked about a node, this is about its state."""


class Admission:
    """Of one owner. `ledger` answers, `router` takes back, `jobs` are under way. `goes_behind` takes calls that are to
    go back behind others that still do, and says whether there are any. `failed`: the calls that raised.
    """

    ledger: Ledger
    jobs: Jobs
    router: Mailbox[ToRouter]

    goes_behind: Callable[[list[Call]], bool]

    def __init__(self, stage: OwnerStage, clock: Callable[[], float]) -> None:
        self._part = StrangersSlice(clock)
        self._departures = Departures(self._part)
        self._stage = stage
        self._held: list[Call] = []
        self._put_off = PutOff()
        self._begins_next = False
        self.failed = FailedCalls()

    @property
    def has_calls(self) -> bool:
        """Whether calls were put off, or strangers' are under way."""
        return self._put_off.has_any or bool(self.jobs.strangers.jobs)

    @property
    def has_more(self) -> bool:
        """Whether `admit` and `execute_strangers` have something to do, though nobody asks: in `more_in_s`."""
        return self.has_calls or self._departures.has_any

    @property
    def holds_what_may_be_done(self) -> bool:
        """Whether calls are held that `admit` would give, since a majority was heard."""
        return bool(self._held) and self._stage.serves and not self.ledger.lease.is_doubtful

    @property
    def holds_any(self) -> bool:
        """Whether calls are held until they may be done."""
        return bool(self._held)

    @property
    def more_in_s(self) -> float:
        """In how many seconds that is: for strangers when they have time again."""
        put_off = self._put_off
        return 0.0 if put_off.has_known or (put_off.has_any and not self._stage.serves) else self._part.in_s

    def admit(self, calls: list[Call]) -> list[Call]:
        """Those that may be done now, behind those that came before, but for strangers': see `execute_strangers`."""
        stage, put_off = self._stage, self._put_off
        if stage.is_stopping:
            self.refuse(calls, ErrorWord.STOPPING, STOPS)
            return []
        if not stage.serves or self.ledger.lease.is_doubtful:
            if put_off.has_any:
                put_off.add(calls)
                calls = put_off.take_all()
            return self._own_view_of(calls)
        if self._held:
            put_off.put_first(self.take_unserved())
        if put_off.has_any or some_are_strangers(calls):
            put_off.add(calls)
            calls = put_off.take()
        if calls:
            self._part.others_ask()
        return calls

    def execute_strangers(self, broker: Broker, execute: Callable[[Call], None], is_late: Callable[[], bool]) -> None:
        """Forget strangers that are gone, and have some of the others' calls done, as much as they have time for.

        It comes behind what was admitted. Who is gone comes first: what others ask would leave no time for that.
        """
        self._departures.go_on(lambda client: self._forget(client, broker))
        put_off, jobs, part = self._put_off, self.jobs.strangers.jobs, self._part
        begins = put_off.has_strangers and self._stage.serves
        if not begins and not jobs:
            return
        at = part.begin()
        while part.has_time:
            begins = begins and put_off.has_strangers
            self._begins_next = begins and not (jobs and self._begins_next)  # by turns, where there are both
            if jobs and not self._begins_next:
                broker.go_on_stranger()
            elif begins:
                execute(put_off.take_stranger())
            else:
                break
            at = part.spent(at)
            if is_late():
                break

    def _own_view_of(self, calls: list[Call]) -> list[Call]:
        """Give the calls that can be answered though this node does not serve; hold the others, or refuse them."""
        own = [call for call in calls if call.request.action in ASKS_NODE]
        others = [call for call in calls if call.request.action not in ASKS_NODE]
        if others and self._stage.leads:
            self.hold(others)
        elif not self.goes_behind(others):
            self.give_back(others)
        if not self._stage.is_reloading:
            return own
        of_queues = [call for call in own if call.request.action in OF_QUEUES]
        self.refuse(of_queues, ErrorWord.NO_LEADER, READS_AGAIN)
        return [call for call in own if call.request.action not in OF_QUEUES]

    def put_off(self, calls: list[Call]) -> None:
        """Do the last of those that were admitted in the turns to come, since it was late."""
        self._put_off.put_first(calls)

    def hold(self, calls: list[Call]) -> None:
        """They are to be done when the node serves."""
        note_late(calls)
        self._held += calls

    def take_unserved(self) -> list[Call]:
        """Hand over what waits until the node serves; it is the caller's now."""
        held, self._held = self._held, []
        return held

    def take_held(self) -> list[Call]:
        """Hand over what was held, and what was put off; it is the caller's now."""
        return [*self.take_unserved(), *self._put_off.take_all()]

    def rejudge(self, broker: Broker, message: RightsChanged) -> list[Call]:
        """Refuse what the client waits for, and what is held, if it may not have it: what it may do has changed.

        Returns what has waited for what the client has written, and it still may do.
        """
        client, principal = message.client, message.principal
        reads = broker.rejudge(client, principal)
        if self._held:
            self._held = self._allowed(self._held, client, principal)
        if self._put_off.has_any:
            self._put_off.add(self._allowed(self._put_off.take_all(), client, principal))
        return self._allowed(reads, client, principal)

    def _allowed(self, calls: list[Call], client: Client, principal: Principal) -> list[Call]:
        """Those of the calls that their clients may ask for; what the client may not is refused."""
        allowed = []
        for call in calls:
            if call.client is client:
                call.principal = principal
                missing = principal.rights.missing(call.request)
                if missing is not None:
                    self.ledger.answer(call, not_allowed(call.request, missing))
                    continue
            allowed.append(call)
        return allowed

    def client_gone(self, client: Client, broker: Broker) -> None:
        """Let a client wait for nothing any more: soon if it is a stranger that has left, else now."""
        if client.has_left and broker.may_forget_later(client):
            self._departures.note(client)
        else:
            self._forget(client, broker)

    def _forget(self, client: Client, broker: Broker) -> None:
        """End its waits, and answer those of its calls that would only have waited."""
        broker.forget(client)
        if self._held:
            self._held = self._waiting_no_more(self._held, client)
        if self._put_off.has_any and not client.has_left:  # who has left is looked at when its turn comes
            self._put_off.add(self._waiting_no_more(self._put_off.take_all(), client))

    def _waiting_no_more(self, calls: list[Call], client: Client) -> list[Call]:
        """Those that are not the client's consumers, which are answered."""
        others = []
        for call in calls:
            if call.client is client and consumes(call):
                self.ledger.answer(call, nothing_for(call.request))
            else:
                others.append(call)
        return others

    def refuse(self, calls: list[Call], error: str, reason: str) -> None:
        """None of them is done."""
        for call in calls:
            self.ledger.answer(call, refusal(call.request, error, reason))

    def let_go(self, calls: list[Call]) -> None:
        """They waited here, and do not any more."""
        if self._stage.is_stopping:
            self.refuse(calls, ErrorWord.STOPPING, STOPS)
        else:
            self.give_back(calls)

    def give_back(self, calls: list[Call]) -> None:
        """They were not done: the Router finds out who leads."""
        if calls:
            self.router.tell(Returned(calls))
