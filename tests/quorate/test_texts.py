"""Whatever Python holds in an exception, a name or a header can be stored, and settles its message."""

import logging
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorate import Worker
from quorate.messages import checked_headers, reason_of
from quorate.protocol import REASON_MAX
from quorate.texts import log_error, said_by, storable, text_of, traceback_of
from tests.cluster import wait_for
from tests.conftest import StartNode
from tests.quorate.test_worker import QUICK, OddError, size, working

ANY_TEXT = st.text(st.characters(codec=None, exclude_categories=()), max_size=400)


class NoTextError(Exception):
    def __str__(self) -> Any:
        return 7


class EndsError(Exception):
    def __str__(self) -> str:
        raise SystemExit(2)


class DeepError(Exception):
    def __str__(self) -> str:
        return str(self)


ODD = [
    OddError(),
    NoTextError(),
    EndsError(),
    DeepError(),
    ValueError("caf\udce9"),
    ValueError("\0\n\x1b"),
    ValueError("x" * 2_000_000),
]


@given(ANY_TEXT)
def test_any_text_can_be_stored_and_one_that_could_be_is_as_it_was(text: str) -> None:
    stored = storable(text)
    stored.encode()
    try:
        text.encode()
    except UnicodeEncodeError:
        assert "\\u" in stored
    else:
        assert stored == text
    reason = reason_of(text)
    assert reason is not None
    reason.encode()
    assert len(reason) <= REASON_MAX
    if text:
        headers = checked_headers({text[:9]: text[:99]})
        assert headers is not None
        [(name, value)] = headers.items()
        (name + value).encode()


@pytest.mark.parametrize("error", ODD, ids=lambda error: type(error).__name__)
def test_any_exception_has_a_text(error: Exception) -> None:
    assert said_by(error).startswith(f"{type(error).__name__}: ")
    reason = reason_of(error)
    assert reason is not None
    reason.encode()
    assert text_of(error)


@pytest.mark.parametrize("error", ODD, ids=lambda error: type(error).__name__)
def test_a_message_is_buried_for_any_reason(start_node: StartNode, error: Exception) -> None:
    """Half of a surrogate pair in what an exception said, and the message ran at each lease, for ever."""
    with start_node().client() as client:
        client.configure("q", dead_letter="q.dead")
        runs = []

        def handle(message: Any) -> None:
            runs.append(message.msg_id)
            message.bury(error)

        client.produce("q", 1, retry=1)
        worker = Worker(client, "q", handle, backoff=QUICK)
        with working(worker):
            wait_for(lambda: size(client, "q.dead") == 1 if "q.dead" in client.queues() else False)
        assert len(runs) == 1
        assert (client.peek("q.dead")[0].dead or {})["reason"]


def test_an_exception_that_can_not_be_printed_is_logged_all_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    """Python's logging raises for one whose context can't be printed: a worker's thread ended by that."""
    logger = logging.getLogger("quorate.tests.texts")
    logger.propagate = False
    logger.addHandler(logging.StreamHandler(sys.stderr))
    error = SyntaxError("x", ("f", 1, 2, 5))  # type: ignore[arg-type]  # what a task may raise
    assert traceback_of(error) == "SyntaxError: x (f, line 1)"
    try:
        raise error
    except SyntaxError:
        log_error(logger, error, "%s failed", "it")
    log_error(logger, ValueError("fine"), "%s failed", "that")
    said = capsys.readouterr().err
    assert "it failed" in said
    assert "that failed\nValueError: fine" in said
