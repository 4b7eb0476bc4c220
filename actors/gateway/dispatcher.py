"""Dispatcher: which shard does a request. Stands before the Routers, one a shard, where a node has several shards.

A request about one shard goes to that shard's Router as it came. One about several is asked of each of them, in parts
that come back here: see `actors.gateway.gathers` and `actors.gateway.seeking`. Produces to virtual queues become one
produce to each real queue, wherever that is.
"""

from collections.abc import Iterable
from typing import Any, Final

import pykka

from actors.gateway.gather import Gather
from actors.gateway.gathers import All, Following, Gathered, Listed, Mapped, Settled, Spread, Stated
from actors.gateway.homing import Habit, Homing
from actors.gateway.seeking import Seeking, Step
from actors.gateway.sharding import BY_MESSAGE, CHANGES, OVER_QUEUES, SEVERAL, Part, Sharding
from actors.gateway.virtual_queues import VirtualQueues
from actors.messages.answering import send_answers
from actors.messages.call import Answer, Call, Client
from actors.messages.calls import Answered, ClientGone, CountsWanted, Execute, Rejudge
from actors.messages.lifecycle import (
    AccessChanged,
    LedHere,
    Listening,
    MoveClient,
    Reconfigure,
    ShardFaults,
    Stop,
    Stopped,
)
from actors.messages.rights import not_allowed
from actors.runtime.contract import Runtime
from actors.runtime.loop_actor import LoopActor
from net.clients.connection import Connection
from quorate.protocol import Action, ErrorWord, Request, StatusReply, refusal

MOVE_AFTER: Final = 32
"""A client that has asked one shard so many times on end, and another worker has that, is moved there."""

SEEKING_MAX: Final = 32
"""Consumers over several shards that one client may have open: fewer than a connection may, so its end is noticed."""


class Dispatcher(LoopActor):
    """`routers` are the Routers by shard; that of this worker's own shard is `routers[sharding.own]`."""

    def __init__(
        self,
        runtime: Runtime,
        sharding: Sharding,
        routers: "list[pykka.ActorRef[Any]]",
        virtual_queues: dict[str, list[str]],
        move_after: int = MOVE_AFTER,
    ) -> None:
        super().__init__(runtime)
        self._homing = Homing(move_after)
        self._sharding = sharding
        self._routers = routers
        self._virtual_queues = VirtualQueues(virtual_queues)
        self._listener: pykka.ActorRef[Any] | None = None
        self._faults: dict[int, str] = {}
        self._seeking_of: dict[Client, dict[Seeking, None]] = {}
        self._stopping: Stop | None = None
        self._is_stopping = False
        self._to_stop = 0
        self.handlers = {
            Execute: lambda m: self._execute(m.calls),
            Answered: lambda m: self._answered(m.answers),
            ClientGone: self._client_gone,
            Rejudge: self._rejudge,
            Listening: self._listening,
            Reconfigure: self._reconfigure,
            AccessChanged: self._access_changed,
            ShardFaults: self._shard_faults,
            LedHere: self._led_here,
            Stop: self._stop_asked,
            Stopped: self._stopped,
        }

    def _listening(self, message: Listening) -> None:
        self._listener = message.listener
        self._routers[self._sharding.own].tell(message)

    def _reconfigure(self, message: Reconfigure) -> None:
        self._virtual_queues = VirtualQueues(message.limits)

    def _access_changed(self, message: AccessChanged) -> None:
        for router in self._routers:
            router.tell(message)

    def _shard_faults(self, message: ShardFaults) -> None:
        self._faults = message.faults

    def _led_here(self, message: LedHere) -> None:
        self._homing.led_here = message.shards

    # -- requests ----------------------------------------------------------------------------------------------

    def _execute(self, calls: list[Call]) -> None:
        refused: list[Answer] = []
        if self._virtual_queues.names:
            calls, refused = self._virtual_queues.split(calls, self.actor_ref)
            for call in calls:
                call.is_part = isinstance(call.client, Gather)
        by_shard: dict[int, list[Call]] = {}
        shard_of, own = self._sharding.shard_of, self._sharding.own
        for call in calls:
            shard = shard_of(call.request)
            if shard == SEVERAL:
                for at, part in self._parts(call, refused):
                    by_shard.setdefault(at, []).append(part)
            else:
                by_shard.setdefault(shard, []).append(call)
                if shard != own:
                    self._strayed(call.client, shard)
                elif (habit := getattr(call.client, "habit", None)) is not None:
                    habit.count = 0
        self._hand_on(by_shard)
        send_answers(refused)

    def _strayed(self, client: Client, shard: int) -> None:
        """A client that asks one shard of another worker again and again goes there."""
        if type(client) is not Connection:
            return
        habit = client.habit
        if habit is None:
            habit = client.habit = Habit()
        if self._homing.asked(habit, shard) and self._listener is not None:
            self._listener.tell(MoveClient(client, shard))

    def _hand_on(self, by_shard: dict[int, list[Call]]) -> None:
        for shard, calls in by_shard.items():
            self._routers[shard].tell(Execute(calls))

    def _parts(self, call: Call, refused: list[Answer]) -> Iterable[tuple[int, Call]]:
        """What is asked of which shard for a request that concerns several."""
        request, sharding = call.request, self._sharding
        fault = sharding.fault(request)
        if fault is not None:
            refused.append((call, fault))
            return ()
        if request.action in OVER_QUEUES and request.queues is not None:
            return self._over_queues(call)
        gathered: Gathered
        if request.action == Action.NODE_STATUS:
            gathered = Stated(call, sharding.every(request), sharding.own, self._faults)
        elif request.action in BY_MESSAGE:
            parts = sharding.by_ids(request)
            if len(parts) == 1:
                return [(parts[0].shard, call)]
            gathered = Settled(call, parts)
        elif request.action == Action.CLUSTER and request.command in (None, "status"):
            gathered = Spread(call, sharding.every(request))
        elif request.action == Action.CLUSTER and request.command in CHANGES:
            gathered = Following(call, sharding.every(Request(Action.CLUSTER, command="status")))
        elif request.action == Action.CLUSTER:
            gathered = All(call, sharding.every(request))
        elif request.action == Action.LEADER:
            gathered = Mapped(call, sharding.every(request))
        else:
            gathered = Listed(call, sharding.every(request))
        return [
            (part.shard, self._part(call, gathered, order, part, is_single=True))
            for order, part in enumerate(gathered.parts)
        ]

    def _over_queues(self, call: Call) -> Iterable[tuple[int, Call]]:
        groups = self._sharding.groups(call.request)
        if len(groups) == 1:
            return [(groups[0][0], call)]
        if len(self._seeking_of.get(call.client, ())) >= SEEKING_MAX:
            reason = f"{SEEKING_MAX} consumers of this connection wait for queues of several shards already"
            send_answers([(call, refusal(call.request, ErrorWord.OVERLOADED, reason))])
            return ()
        seeking = Seeking(call, groups, self.runtime.monotonic())
        self._seeking_of.setdefault(call.client, {})[seeking] = None
        self._take(seeking, seeking.begin(self.runtime.monotonic()))
        return ()

    def _part(self, call: Call, client: Any, order: int, part: Part, *, is_single: bool) -> Call:
        return Call(
            part.request,
            client,
            order,
            self.actor_ref,
            call.reply_bytes_max,
            is_single=is_single,
            is_part=True,
            principal=call.principal,
        )

    # -- answers -----------------------------------------------------------------------------------------------

    def _answered(self, answers: list[Answer]) -> None:
        finished: list[Answer] = []
        for call, reply in answers:
            client = call.client
            if isinstance(client, Seeking):
                self._take(client, client.answered(self.runtime.monotonic(), call.order, reply))
                continue
            assert isinstance(client, Gather)
            if type(reply) is StatusReply and not reply.pid and self._listener is not None:
                self._listener.tell(CountsWanted(call, reply))  # it comes back with what the Listener counts
                continue
            client.answer(call.order, call.request, reply)
            if not client.is_complete:
                continue
            if not isinstance(client, Following) or client.fault is not None:
                finished.append((client.call, client.reply()))
            elif self._is_stopping:
                refused = refusal(client.call.request, ErrorWord.STOPPING, "the node is stopping")
                finished.append((client.call, refused))
            elif client.call.client.is_gone:  # it may have asked for it again, and for more since
                refused = refusal(client.call.request, ErrorWord.MEMBERSHIP, "its client is gone")
                finished.append((client.call, refused))
            else:
                self._routers[0].tell(Execute([client.call]))
        send_answers(finished)

    def _take(self, seeking: Seeking, step: Step) -> None:
        call = seeking.call
        for order, part in step.asks:
            self._routers[part.shard].tell(Execute([self._part(call, seeking, order, part, is_single=False)]))
        if step.reply is None:
            return
        for shard in step.let_go:
            self._routers[shard].tell(ClientGone(seeking))
        mine = self._seeking_of.get(call.client)
        if mine is not None:
            mine.pop(seeking, None)
            if not mine:
                del self._seeking_of[call.client]
        send_answers([(call, step.reply)])

    def _client_gone(self, message: ClientGone) -> None:
        for seeking in list(self._seeking_of.get(message.client, ())):
            self._take(seeking, seeking.client_gone(self.runtime.monotonic()))
        for router in self._routers:
            router.tell(message)

    def _rejudge(self, message: Rejudge) -> None:
        """A consumer over several shards that may not have all of its queues any more is told so."""
        for seeking in list(self._seeking_of.get(message.client, ())):
            call = seeking.call
            call.principal = message.principal
            missing = message.principal.rights.missing(call.request)
            if missing is not None:
                refused = not_allowed(call.request, missing)
                self._take(seeking, seeking.refuse(self.runtime.monotonic(), refused))
            for router in self._routers:
                router.tell(Rejudge(seeking, message.principal))
        for router in self._routers:
            router.tell(message)

    # -- stopping ----------------------------------------------------------------------------------------------

    def _stop_asked(self, message: Stop) -> None:
        """First what other workers do for this one's clients is finished, then this one's own shard stops."""
        self._stopping = message
        self._is_stopping = True
        own = self._sharding.own
        for seekings in list(self._seeking_of.values()):
            for seeking in list(seekings):
                self._take(seeking, seeking.stop(self.runtime.monotonic()))
        for shard, router in enumerate(self._routers):
            if shard != own:
                self._to_stop += 1
                router.tell(Stop(self.actor_ref))

    def _stopped(self, message: Stopped) -> None:
        self._to_stop -= 1
        if not self._to_stop and self._stopping is not None:
            stopping, self._stopping = self._stopping, None
            self._routers[self._sharding.own].tell(stopping)
