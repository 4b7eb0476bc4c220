"""Whether the loop stood still before what is read from sockets now."""

import asyncio
import socket
import time

import uvloop

from actors.runtime.asyncio_runtime import PULSE_S, AsyncioRuntime
from actors.runtime.blocking import mark_loop_thread
from actors.runtime.contract import STILL_S


def test_what_lay_in_a_socket_while_the_loop_stood_still_is_known_as_late_and_later_reads_are_not() -> None:
    loop = uvloop.new_event_loop()
    ours, theirs = socket.socketpair()
    seen: list[bool] = []
    try:
        runtime = AsyncioRuntime(loop, lambda who, error: None)

        def read() -> None:
            ours.recv(1)
            seen.append(runtime.stood_still())

        ours.setblocking(False)
        loop.add_reader(ours, read)

        async def go() -> None:
            await asyncio.sleep(3 * PULSE_S)  # idle is not still
            theirs.send(b"1")
            await asyncio.sleep(0.01)
            theirs.send(b"2")
            time.sleep(STILL_S + 0.02)  # that is what is tried
            await asyncio.sleep(0.01)
            theirs.send(b"3")  # it may have come meanwhile, for all that is known
            await asyncio.sleep(STILL_S + 2 * PULSE_S)
            theirs.send(b"4")
            await asyncio.sleep(0.01)

        loop.run_until_complete(go())
        assert seen == [False, True, True, False]
    finally:
        mark_loop_thread(False)
        loop.close()
        ours.close()
        theirs.close()
