"""qctl msg produce --from-file: a line a message, however long the file and however often the node goes away."""

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, Final

from cli.output import told_error
from quorate import Client, ConnectionFailedError, QuorateError, RefusedError, UnknownOutcomeError
from quorate.protocol import BATCH_MAX, ErrorWord

BATCH_BYTES: Final = 1 << 20
"""A request has so many bytes of lines at most, or one line."""

LATER: Final = (ErrorWord.OVERLOADED, ErrorWord.NO_LEADER)
PAUSE_S: Final = 0.2
PATIENCE_S: Final = 60.0
"""So long a batch is tried again while no node takes it."""


class Sent:
    """`lines`: so many were stored. `repeated`: of these so many may be there twice, since an answer was lost."""

    def __init__(self) -> None:
        self.lines = self.repeated = 0


def send(connection: Client, queue: str, path: str, skip: int, value: Callable[[bytes], Any], **options: Any) -> Sent:
    """Produce the lines of a file (`-`: standard input) behind the first `skip`, in their order.

    Raises what the node refuses, or `QuorateError` when none has taken a batch for a minute, having told how many lines
    are stored.
    """
    sent = Sent()
    try:
        if path == "-":
            _send(connection, queue, sys.stdin.buffer, skip, value, options, sent)
        else:
            with Path(path).open("rb") as file:
                _send(connection, queue, file, skip, value, options, sent)
    except BaseException:
        if sent.lines:
            told_error(f"{sent.lines} lines were stored: --skip {skip + sent.lines} goes on behind them")
        raise
    return sent


def _send(
    connection: Client,
    queue: str,
    file: IO[bytes],
    skip: int,
    value: Callable[[bytes], Any],
    options: dict[str, Any],
    sent: Sent,
) -> None:
    for batch in _batches(file, skip):
        _produce(connection, queue, [value(line) for line in batch], options, sent)
        sent.lines += len(batch)


def _batches(file: IO[bytes], skip: int) -> Iterator[list[bytes]]:
    batch: list[bytes] = []
    size = 0
    for number, line in enumerate(file):
        if number < skip:
            continue
        if batch and (len(batch) == BATCH_MAX or size + len(line) > BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(line.removesuffix(b"\n").removesuffix(b"\r"))
        size += len(line)
    if batch:
        yield batch


def _produce(connection: Client, queue: str, values: list[Any], options: dict[str, Any], sent: Sent) -> None:
    """Produce all of these, once, or again where nobody knows whether that was done."""
    until = time.monotonic() + PATIENCE_S
    is_in_doubt = False
    while True:
        try:
            connection.produce_many(queue, values, **options)
            sent.repeated += len(values) if is_in_doubt else 0
            return
        except (UnknownOutcomeError, ConnectionFailedError, RefusedError) as error:
            was_never_there = isinstance(error, ConnectionFailedError) and not sent.lines
            if was_never_there or (isinstance(error, RefusedError) and error.error not in LATER):
                raise
            is_in_doubt = is_in_doubt or isinstance(error, UnknownOutcomeError)
            if time.monotonic() > until:
                raise QuorateError(f"no node has taken a batch for {PATIENCE_S:g} s: {error}") from error
            time.sleep(PAUSE_S)
