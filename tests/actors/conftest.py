"""Actors that a test has cranked by hand are nobody's when it ends."""

from collections.abc import Iterator

import pykka
import pytest


@pytest.fixture(autouse=True)
def nobody_is_left() -> Iterator[None]:
    """Who stops all actors at the end must not wait for those whose runtime is cranked no more."""
    yield
    for ref in list(pykka.ActorRegistry.get_all()):
        pykka.ActorRegistry.unregister(ref)
