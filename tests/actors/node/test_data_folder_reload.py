"""When a reload is done, and what is said of workers that do not go by it."""

from pathlib import Path

from actors.node.data_folder import WAIT_S, Reload, last_reload, note_reload


def reload(*told: str) -> Reload:
    return Reload(3, ["read again"], told, 100.0, is_taken=True)


def test_it_is_done_when_the_last_worker_has_answered(tmp_path: Path) -> None:
    under_way = reload("worker 0", "worker 1")
    assert under_way.outcome(100.0) is None
    under_way.answered("worker 0", 3, [])
    assert under_way.outcome(100.1) is None
    under_way.answered("worker 1", 3, [])
    outcome = under_way.outcome(100.1)
    assert outcome is not None
    assert (outcome.serial, outcome.is_taken, outcome.said, outcome.without) == (3, True, ["read again"], [])
    note_reload(tmp_path, outcome)
    assert last_reload(tmp_path) == outcome


def test_an_answer_to_an_earlier_reload_does_not_count() -> None:
    under_way = reload("worker")
    under_way.answered("worker", 2, [])
    assert under_way.outcome(100.1) is None


def test_a_worker_that_ended_is_not_waited_for() -> None:
    under_way = reload("worker 0", "worker 1")
    under_way.gone("worker 0")
    under_way.answered("worker 1", 3, [])
    outcome = under_way.outcome(100.1)
    assert outcome is not None
    assert not outcome.without


def test_who_has_faults_and_who_is_late_is_told() -> None:
    under_way = reload("worker 0", "worker 1", "worker 2")
    under_way.answered("worker 0", 3, ["a.crt: no such file"])
    under_way.answered("worker 1", 3, [])
    assert under_way.outcome(99.9 + WAIT_S) is None
    outcome = under_way.outcome(100.0 + WAIT_S)
    assert outcome is not None
    assert outcome.without == ["worker 0", "worker 2"]
    assert outcome.said[1:] == [
        "worker 0 has not taken all of it: a.crt: no such file",
        "worker 2 has not taken it yet, and will when it can",
    ]


def test_what_was_refused_waits_for_nobody() -> None:
    outcome = Reload(1, ["stays"], [], 100.0, is_taken=False).outcome(100.0)
    assert outcome is not None
    assert not outcome.is_taken
