"""Chords whose workers are killed, whose parts come again, whose ids are odd: each is judged by the exit code."""

import os
import signal
import sys
import time

from celery import Celery
from celery.exceptions import TimeoutError as CeleryTimeoutError

import quorate.celery_results as backends
from quorate import Client
from quorate.celery_results import QuorateBackend
from quorate.errors import NotAllowedError, RefusedError

URL = os.environ["QUORATE_URL"]
app = Celery("chords", broker=URL, broker_transport="quorate.kombu:Transport", backend=URL)
backend = QuorateBackend(app, url=URL)


@app.task(name="body")
def body(parts):
    return parts


class Request:
    """As much of a request as a header's task has."""

    def __init__(self, part, group, index):
        self.id, self.group, self.group_index = part, group, index
        self.chord = body.s().set(task_id=f"body{abs(hash(group))}")


def part(group, index, name=None, by=backend):
    by.on_chord_part_return(Request(name or f"{group}.{index}", group, index), "SUCCESS", index)


def bodies():
    with Client(URL) as client:
        return client.monitor("celery")["size"]


def in_child(work):
    pid = os.fork()
    if not pid:
        work()
        os._exit(1)
    assert os.waitpid(pid, 0)[1] == signal.SIGKILL


def killed_with_the_claim():
    """The worker that gets the part again starts the body, when the claim has ended."""
    backends.CLAIM_S = 2.0
    backend.set_chord_size("a", 2)
    part("a", 0)

    def die():
        QuorateBackend._joined = lambda self, group: os.kill(os.getpid(), signal.SIGKILL)
        part("a", 1)

    in_child(die)
    assert bodies() == 0
    part("a", 1)
    assert bodies() == 1


def comes_again():
    """A part that comes again, before the end or after it, starts no second body."""
    backend.set_chord_size("b", 2)
    part("b", 0)
    part("b", 0)
    assert bodies() == 0
    part("b", 1)
    part("b", 1)
    part("b", 0)
    assert bodies() == 1


def killed_after_the_body_was_sent():
    backends.CLAIM_S = 1.0
    backend.set_chord_size("c", 1)

    def die():
        Client.remove = lambda self, queue: os.kill(os.getpid(), signal.SIGKILL)
        part("c", 0)

    in_child(die)
    assert bodies() == 1
    time.sleep(1.5)
    part("c", 0)
    assert bodies() == 1


def takes_longer_than_results_live():
    brief = QuorateBackend(app, url=URL, expires=2)
    brief.set_chord_size("d", 4)
    for index in range(4):
        part("d", index, by=brief)
        time.sleep(1)
    assert bodies() == 1


def without_the_right_to_manage():
    """A chord that begins again under its id has its own parts alone."""
    denied = RefusedError("not_allowed", "the right manage is missing", {})
    denied.__class__ = NotAllowedError

    def refuse(self, *what, **more):
        raise denied

    Client.configure = Client.remove = refuse
    for run in range(1, 3):
        backend.set_chord_size("m", 2)
        part("m", 0, f"m{run}.0")
        assert bodies() == run - 1
        part("m", 1, f"m{run}.1")
        assert bodies() == run


def many_results_are_few_requests():
    """Of very many that are waited for, some are looked at now and then."""
    asked = []
    honest = Client.result
    Client.result = lambda self, *what, **more: asked.append(1) or honest(self, *what, **more)
    try:
        list(backend.get_many([f"none{n}" for n in range(500)], timeout=2))
    except CeleryTimeoutError:
        pass
    else:
        raise AssertionError("there are none")
    assert len(asked) < 500, len(asked)
    for n in range(300):
        backend.store_result(f"r{n}", n, "SUCCESS")
    asked.clear()
    got = dict(backend.get_many([f"r{n}" for n in range(300)], timeout=20))
    assert {name: meta["result"] for name, meta in got.items()} == {f"r{n}": n for n in range(300)}
    assert len(asked) < 500, len(asked)


def odd_ids():
    names = ["a b", 'a"b', "\u00fc" * 200, "a\nb", "a\0b", "x" * 300]
    for number, name in enumerate(names, 1):
        backend.set_chord_size(f"g{name}", 1)
        part(f"g{name}", 0, name)
        assert bodies() == number, name
        backend.store_result(name, number, "SUCCESS")
        assert backend.get_result(name) == number
        backend.forget(name)
        assert backend.get_state(name) == "PENDING"


if __name__ == "__main__":
    with Client(URL) as client:
        client.configure("celery")
    globals()[sys.argv[1]]()
    sys.stdout.write("held\n")
