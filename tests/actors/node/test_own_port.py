"""Waiting for a port: as long as a killed node may still have it, and no longer."""

import errno
import time

import pytest

from actors.node.own_port import GOING_S, when_free


def test_what_somebody_has_is_tried_again_until_it_is_free() -> None:
    taken = [OSError(errno.EADDRINUSE, "in use")] * 3

    def bind() -> int:
        if taken:
            raise taken.pop()
        return 7

    assert when_free(bind) == 7


@pytest.mark.parametrize(("number", "least_s", "most_s"), [(errno.EADDRINUSE, GOING_S, 10.0), (errno.EACCES, 0.0, 0.2)])
def test_what_somebody_keeps_or_nobody_may_have_is_told(number: int, least_s: float, most_s: float) -> None:
    begun = time.monotonic()

    def bind() -> None:
        raise OSError(number, "no")

    with pytest.raises(OSError, match="no"):
        when_free(bind)
    assert least_s <= time.monotonic() - begun < most_s
