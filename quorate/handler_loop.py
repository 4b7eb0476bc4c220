"""The loop on which a worker's async handlers run: all of them on one, in a thread of its own, so that they may share
what belongs to a loop, as an `AsyncClient` does."""

import asyncio
import inspect
import logging
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from typing import Any, Final, TypeVar

from quorate.texts import log_error

log = logging.getLogger("quorate.worker")

CANCELLED_S: Final = 1.0
"""So long handlers that are cancelled at the end have for that."""

T = TypeVar("T")


class HandlerLoop:
    """Runs coroutines from when it is made until `end`."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._tasks: set[asyncio.Task[Any] | None] = set()
        self._has_ended = False
        self._thread = threading.Thread(target=self._keep_looping, name="quorate-loop", daemon=True)
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Begin with it. Any thread may call it, until the end."""
        return asyncio.run_coroutine_threadsafe(self._kept(coroutine), self._loop)

    def end(self) -> None:
        """Cancel what still runs, and wait for that, but not for what can't be cancelled."""
        self._has_ended = True
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CANCELLED_S * 2)

    async def _kept(self, coroutine: Coroutine[Any, Any, T]) -> T:
        task = asyncio.current_task()
        self._tasks.add(task)  # the loop alone does not keep it
        try:
            return await coroutine
        finally:
            self._tasks.discard(task)

    def _keep_looping(self) -> None:
        loop = self._loop
        while not self._has_ended:
            try:
                loop.run_forever()
            except BaseException as error:  # a task that a handler has begun wants to end the process
                log_error(log, error, "what a handler began raised this, and the worker goes on")
        tasks = [task for task in self._tasks if task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            loop.run_until_complete(asyncio.wait(tasks, timeout=CANCELLED_S))
        executor = getattr(loop, "_default_executor", None)
        if executor is not None:
            executor.shutdown(wait=False, cancel_futures=True)
        loop.close()


def is_async(handler: Callable[..., Any]) -> bool:
    """Whether calling it gives a coroutine."""
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(
        getattr(handler, "__call__", None)  # noqa: B004  # whether that is a coroutine function
    )


async def raised_by(result: Awaitable[Any]) -> BaseException | None:
    """Wait for what a handler gave; returns what that raised, whatever it is: its message must not be lost."""
    try:
        await result
    except BaseException as error:
        return error
    return None
