"""Taking in connections a few at a time; those who wait when a port is closed are not cut off."""

import asyncio
import errno
import itertools
import socket
import statistics
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from net import accepting
from net.accepting import ACCEPTED_IN_ONE_TURN, ALL, BURST, CROWD_BURST, Acceptor, Entering, Intake, turn_away


class FullOnce(socket.socket):
    """Has no descriptor for the first that comes."""

    failures = 1

    def accept(self) -> tuple[socket.socket, Any]:
        """As always, but for the first time."""
        if self.failures:
            self.failures -= 1
            raise OSError(errno.EMFILE, "no descriptor is left")
        return super().accept()


class Door:
    """An acceptor on a free port, who came, and clients that are closed in the end."""

    def __init__(self, kind: type[socket.socket] = socket.socket) -> None:
        self.bound = kind()
        self.bound.setblocking(False)
        self.bound.bind(("127.0.0.1", 0))
        self.port = self.bound.getsockname()[1]
        self.came: list[tuple[socket.socket, str]] = []
        self.clients: list[socket.socket] = []
        self.at_once = CROWD_BURST
        self.acceptor = Acceptor(
            self.bound, lambda sock, host: self.came.append((sock, host)), at_once=lambda: self.at_once
        )

    def connect(self, count: int) -> None:
        """So many clients; the loop does not run meanwhile."""
        self.clients += [socket.create_connection(("127.0.0.1", self.port), timeout=5) for _ in range(count)]

    async def wait_for(self, count: int) -> None:
        """Until so many have come."""
        async with asyncio.timeout(5):
            while len(self.came) < count:
                await asyncio.sleep(0.005)

    def end(self) -> None:
        """Close everything."""
        self.acceptor.close()
        for sock in (*self.clients, *(sock for sock, _ in self.came)):
            sock.close()


def opened(kind: type[socket.socket], what: Callable[[Door], Awaitable[None]]) -> None:
    """Do it with a door in a loop."""

    async def run() -> None:
        door = Door(kind)
        try:
            await what(door)
        finally:
            door.end()

    asyncio.run(run())


def test_whoever_connects_comes_in_with_his_host_and_is_not_waited_for() -> None:
    async def what(door: Door) -> None:
        door.connect(3)
        await door.wait_for(3)
        assert [host for _, host in door.came] == ["127.0.0.1"] * 3
        for (sock, _), client in zip(door.came, door.clients, strict=True):
            assert not sock.getblocking()
            sock.sendall(b"hello")
            assert client.recv(10) == b"hello"

    opened(socket.socket, what)


def test_a_flood_is_taken_in_small_steps_and_at_a_bounded_rate() -> None:
    async def what(door: Door) -> None:
        steps: list[int] = []

        def watch() -> None:
            steps.append(len(door.came))
            asyncio.get_running_loop().call_soon(watch)

        count = int(CROWD_BURST) + 40
        door.connect(count)
        watch()
        begun = asyncio.get_running_loop().time()
        await door.wait_for(count)
        took_s = asyncio.get_running_loop().time() - begun
        grown = [after - before for before, after in itertools.pairwise(steps)]
        assert 1 < max(grown) <= ACCEPTED_IN_ONE_TURN, "the loop's others had their turn between steps"
        assert took_s >= 40 / accepting.PER_S / 2

    opened(socket.socket, what)


def test_many_come_at_once_where_there_is_no_crowd() -> None:
    async def what(door: Door) -> None:
        door.at_once = BURST
        await asyncio.sleep(1.5 * BURST / accepting.PER_S)
        count = int(BURST) - 10
        door.connect(count)
        begun = asyncio.get_running_loop().time()
        await door.wait_for(count)
        calm_s = asyncio.get_running_loop().time() - begun
        door.at_once = CROWD_BURST
        door.connect(count)
        begun = asyncio.get_running_loop().time()
        await door.wait_for(2 * count)
        assert calm_s < (asyncio.get_running_loop().time() - begun) / 2, "what was left over is forgotten in a crowd"

    opened(socket.socket, what)


def test_all_come_as_soon_as_they_do_where_all_may_and_are_paced_again_when_not() -> None:
    async def what(door: Door) -> None:
        loop = asyncio.get_running_loop()
        door.at_once = ALL
        steps: list[int] = []

        def watch() -> None:
            steps.append(len(door.came))
            loop.call_soon(watch)

        count = int(2 * BURST)
        door.connect(count)
        watch()
        begun = loop.time()
        await door.wait_for(count)
        assert loop.time() - begun < BURST / accepting.PER_S, "no pace"
        grown = [after - before for before, after in itertools.pairwise(steps)]
        assert max(grown) <= ACCEPTED_IN_ONE_TURN, "the loop's others had their turn"
        door.at_once = CROWD_BURST
        door.connect(40)
        begun = loop.time()
        await door.wait_for(count + 40)
        assert loop.time() - begun >= (40 - CROWD_BURST) / accepting.PER_S / 2

    opened(socket.socket, what)


@pytest.mark.parametrize(("turn_s", "each"), [(0.0, 1.0), (0.002, float(ACCEPTED_IN_ONE_TURN))])
def test_one_comes_in_a_short_turn_and_more_in_a_long_one(turn_s: float, each: float) -> None:
    """To look for another is in vain mostly; but where turns are long it would wait for the whole next one."""

    async def what(door: Door) -> None:
        door.at_once = ALL
        loop = asyncio.get_running_loop()
        turns: list[int] = []

        def others() -> None:
            turns.append(len(door.came))
            time.sleep(turn_s)
            loop.call_soon(others)

        door.connect(60)
        others()
        await door.wait_for(60)
        grown = [after - before for before, after in itertools.pairwise(turns)]
        assert statistics.median([one for one in grown if one]) == each

    opened(socket.socket, what)


def test_without_a_descriptor_it_rests_and_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    async def what(door: Door) -> None:
        door.connect(2)
        await asyncio.sleep(0.05)
        assert not door.came, "it rests"
        await door.wait_for(2)

    opened(FullOnce, what)
    assert "no connection can be taken in" in caplog.text
    assert caplog.text.count("\n") == 1


def test_those_who_wait_when_it_closes_come_in_and_nobody_after_them() -> None:
    async def what(door: Door) -> None:
        door.connect(20)
        door.acceptor.finish()
        door.acceptor.finish()
        assert len(door.came) == 20
        assert not any(sock.getblocking() for sock, _ in door.came)
        with pytest.raises(ConnectionRefusedError):
            door.connect(1)
        await asyncio.sleep(0.05)
        assert len(door.came) == 20
        door.came[0][0].sendall(b"hello")
        assert door.clients[0].recv(10) == b"hello"

    opened(socket.socket, what)


def test_one_that_rests_closes_for_good() -> None:
    async def what(door: Door) -> None:
        faults: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: faults.append(context))
        door.connect(1)
        await asyncio.sleep(0.05)
        door.acceptor.close()
        await asyncio.sleep(accepting.REST_S + 0.1)
        assert not door.came, "they were cut off"
        assert not faults

    opened(FullOnce, what)


def test_an_older_connection_that_is_being_taken_in_makes_room_for_the_next() -> None:
    async def what(door: Door) -> None:
        door.connect(8)
        await door.wait_for(8)
        begun: list[int] = []
        ended: list[int] = []

        async def taking(number: int) -> None:
            begun.append(number)
            await asyncio.sleep(0.1 if number < 7 else 0)
            ended.append(number)

        intake = Intake(4, each=2)
        for number, address in enumerate("aaabcdef"):
            intake.begin(door.came[number][0], address, taking(number))
            assert len(intake) <= 4
        await asyncio.sleep(0.2)
        assert begun == [*ended[1:], 7] == [4, 5, 6, 7], "those before had made room ere they began"
        assert [sock.fileno() < 0 for sock, _ in door.came] == [True] * 4 + [False] * 4
        assert not intake

    opened(socket.socket, what)


def test_who_is_turned_away_is_gone_at_once() -> None:
    async def what(door: Door) -> None:
        door.connect(1)
        await door.wait_for(1)
        turn_away(door.came[0][0])
        with pytest.raises(ConnectionResetError):
            door.clients[0].recv(10)

    opened(socket.socket, what)


def entering(steps: list[Any]) -> tuple[socket.socket, list[str]]:
    """Take a socket in by those steps: a future to wait for, or what is raised; the socket, and what has happened."""
    happened: list[str] = []
    sock = socket.socket()

    async def taking() -> None:
        for step in steps:
            happened.append("step")
            if isinstance(step, BaseException):
                raise step
            await step

    Entering(taking(), sock, lambda: happened.append("ended"))
    return sock, happened


def test_whoever_enters_does_so_at_once_and_goes_on_when_what_he_waits_for_is_there() -> None:
    async def run() -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        sock, happened = entering([waiter])
        assert happened == ["step"], "at once"
        await asyncio.sleep(0.01)
        assert happened == ["step"]
        waiter.set_result(None)
        await asyncio.sleep(0)
        assert happened == ["step", "ended"]
        assert sock.fileno() >= 0
        sock.close()

    asyncio.run(run())


def test_who_is_gone_before_he_has_entered_is_closed_and_whatever_else_is_raised_is_told() -> None:
    async def run() -> None:
        loop = asyncio.get_running_loop()
        told: list[object] = []
        loop.set_exception_handler(lambda loop, context: told.append(context["exception"]))
        waiter: asyncio.Future[None] = loop.create_future()
        sock, happened = entering([waiter, error := RuntimeError("a defect")])
        gone, gone_happened = entering([ConnectionResetError()])
        assert gone.fileno() == -1
        assert gone_happened == ["step", "ended"]
        waiter.set_result(None)
        await asyncio.sleep(0.01)
        assert happened == ["step", "step", "ended"]
        assert told == [error]
        sock.close()

    asyncio.run(run())
