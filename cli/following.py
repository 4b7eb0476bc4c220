"""qctl msg consume --follow: a consumer that goes on, and prints each message or gives it to a command.

It is the library's `Worker`: what was printed, or whose command ended with 0, is confirmed; everything else goes back
to its queue, also when Ctrl-C or a closed pipe ends it.
"""

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any, Final

from cli.message_view import bytes_of
from cli.output import told_error
from cli.quantities import written
from quorate import Client
from quorate.delivered import DeliveredMessage
from quorate.hands import Backoff
from quorate.messages import Message
from quorate.worker import Retry, Worker

BACKOFF: Final = Backoff()
AT_ONCE: Final = 100
"""So many messages are fetched at once to be printed."""


class Following:
    """Prints messages, or gives them to `command`, a line for a shell, with `hands` at once.

    `count`: so many in all; None: for ever. `done`: so many were.
    """

    def __init__(
        self,
        connection: Client,
        queues: list[str],
        show: Callable[[Message], str],
        *,
        count: int | None,
        command: str | None,
        hands: int,
    ) -> None:
        self.done = 0
        self.is_over = False
        self._lock = threading.Lock()
        self._count = count
        self._command = command
        self._show = show
        handler: Any = self._print if command is None else self._run
        at_once = hands if command is not None else AT_ONCE if count is None else min(count, AT_ONCE)
        self._worker = Worker(connection, queues, handler, concurrency=at_once, max_lapses=None, dead_letters=False)

    def run(self) -> None:
        """Go on until Ctrl-C, or a closed pipe, or so many messages."""
        self._worker.run()

    def _end(self) -> None:
        self.is_over = True
        self._worker.stop()

    async def _print(self, message: DeliveredMessage) -> None:
        """Print it, in the order in which they came: the coroutines of one loop begin so, and this never waits."""
        if self.is_over:
            raise Retry
        try:
            sys.stdout.write(self._show(message) + "\n")
            sys.stdout.flush()
        except OSError:  # its reader has what it wants
            self._end()
            raise Retry from None
        self._did_one()

    def _run(self, message: DeliveredMessage) -> None:
        """Run the command with the data on its standard input."""
        if self.is_over:
            raise Retry
        about = {"QUEUE": message.queue, "MSG_ID": message.msg_id, "DELIVERIES": message.deliveries}
        environment = {**os.environ, **{f"QUORATE_{name}": str(value) for name, value in about.items()}}
        done = subprocess.run(
            ["/bin/sh", "-c", self._command or ""],
            input=bytes_of(message.data),
            env=environment,
            check=False,
            start_new_session=True,  # Ctrl-C is for qctl, which lets it end
        )
        if done.returncode:
            rest_s = BACKOFF.rest_s(message.deliveries_here or message.deliveries)
            ended = f"message {message.msg_id} of {message.queue}: its command ended with {done.returncode}"
            told_error(f"{ended}, and it comes again in {written(rest_s)}")
            raise Retry(rest_s)
        self._did_one()

    def _did_one(self) -> None:
        with self._lock:  # hands are threads
            self.done += 1
            is_last = self._count is not None and self.done >= self._count
        if is_last:
            self._end()
