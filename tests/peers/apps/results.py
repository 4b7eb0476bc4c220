"""Result backends of dramatiq, taskiq and Django, and what they are tried for: told by the exit code."""

import asyncio
import dataclasses
import os
import sys
import time

import pytest

from quorate import Client

URL = os.environ["QUORATE_URL"]


def dramatiq_results():
    import dramatiq
    from dramatiq.middleware import Retries
    from dramatiq.results import ResultFailure, ResultMissing, Results, ResultTimeout

    from quorate.dramatiq import QuorateBroker
    from quorate.dramatiq_results import QuorateResultBackend

    backend = QuorateResultBackend(URL)
    broker = QuorateBroker(URL, middleware=[Retries(max_retries=0), Results(backend=backend, result_ttl=60_000)])
    dramatiq.set_broker(broker)

    @dramatiq.actor(store_results=True)
    def work(value):
        if value == "fail":
            raise ValueError(value)
        return [value, {"a": None}]

    sent = [work.send(value) for value in (1, "x\udce9" * 10, "fail")]
    begun = time.monotonic()
    with pytest.raises(ResultTimeout):
        sent[0].get_result(block=True, timeout=300)
    assert 0.25 < time.monotonic() - begun < 3
    with pytest.raises(ResultMissing):
        sent[0].get_result()
    worker = dramatiq.Worker(broker, worker_threads=2)
    worker.start()
    assert sent[0].get_result(block=True, timeout=20_000) == [1, {"a": None}]
    assert sent[1].get_result(block=True, timeout=20_000)[0] == "x\udce9" * 10
    with pytest.raises(ResultFailure, match="fail"):
        sent[2].get_result(block=True, timeout=20_000)
    worker.stop()
    broker.close()


@dataclasses.dataclass
class Order:
    number: int


def taskiq_results():
    from taskiq import TaskiqResult
    from taskiq.depends.progress_tracker import TaskProgress, TaskState
    from taskiq.serializers import PickleSerializer

    from quorate.taskiq_results import QuorateResultBackend, ResultIsMissingError

    def made(value, error=None):
        return TaskiqResult(is_err=error is not None, return_value=value, execution_time=0.5, log="said", error=error)

    async def go():
        plain = QuorateResultBackend(URL, queue="plain")
        pickled = QuorateResultBackend(URL, queue="pickled", serializer=PickleSerializer(), keep_results=False)
        brief = QuorateResultBackend(URL, queue="brief", expires=1)
        assert not await plain.is_result_ready("a")
        with pytest.raises(ResultIsMissingError, match="has not ended"):
            await plain.get_result("a")
        await plain.set_result("a", made({"x": [1, None]}))
        await plain.set_result("a", made({"x": [2]}))
        got = await plain.get_result("a", with_logs=True)
        assert (got.return_value, got.log, got.execution_time) == ({"x": [2]}, "said", 0.5)
        assert (await plain.get_result("a")).log is None
        await plain.set_result("long " * 100, made(1, ValueError("why")))
        failed = await plain.get_result("long " * 100)
        assert failed.is_err
        assert "why" in str(failed.error)
        assert await plain.get_progress("a") is None
        await plain.set_progress("a", TaskProgress(state=TaskState.STARTED, meta={"at": 5}))
        assert (await plain.get_progress("a")).meta == {"at": 5}
        await pickled.set_result("b", made(Order(7)))
        assert (await pickled.get_result("b")).return_value == Order(7)
        assert not await pickled.is_result_ready("b"), "it was to be read once"
        await brief.set_result("c", made(1))
        await asyncio.sleep(1.5)
        assert not await brief.is_result_ready("c")
        waiting = asyncio.create_task(plain.get_result("later", wait=20))
        await asyncio.sleep(0.2)
        await plain.set_result("later", made("came"))
        assert (await waiting).return_value == "came"
        for one in (plain, pickled, brief):
            await one.shutdown()

    asyncio.run(go())


def django_results():
    os.environ["DJANGO_SETTINGS_MODULE"] = "django_site.settings"
    import threading

    import django

    django.setup()
    from django_site import tasks

    from quorate.django.running import TaskRunner
    from quorate.django.tasks import TaskResultDoesNotExist, TaskResultStatus, task_backends

    backend = task_backends["default"]
    assert backend.supports_get_result
    runner = TaskRunner("default")
    for name in ("no such task", "x" * 300, "a\nb", "", "\udce9"):
        with pytest.raises(TaskResultDoesNotExist):
            backend.get_result(name)
    waits = tasks.work.enqueue("waits", 0)
    assert backend.get_result(waits.id).status == TaskResultStatus.READY
    broken = tasks.leaving.enqueue("leaving")
    thread = threading.Thread(target=runner.worker.run)
    thread.start()
    until = time.monotonic() + 20
    while not (waits.is_finished and broken.is_finished):
        assert time.monotonic() < until
        time.sleep(0.05)
        waits.refresh()
        broken.refresh()
    runner.worker.stop()
    thread.join(20)
    assert waits.status == TaskResultStatus.SUCCESSFUL
    assert waits.started_at <= waits.finished_at
    assert (waits.args, waits.kwargs, len(waits.worker_ids)) == (["waits", 0], {}, 1)
    assert broken.status == TaskResultStatus.FAILED
    assert broken.errors[0].exception_class_path
    lapses = tasks.work.enqueue("lapses", 0)
    with Client(URL) as client:
        for _ in range(4):
            taken = client.consume("site.default", wait=10)
            time.sleep(max(taken.due_at - time.time(), 0) + 0.1)
    runner = TaskRunner("default")
    thread = threading.Thread(target=runner.worker.run)
    thread.start()
    until = time.monotonic() + 20
    while not lapses.is_finished:
        assert time.monotonic() < until
        time.sleep(0.1)
        lapses.refresh()
    runner.worker.stop()
    thread.join(20)
    assert lapses.status == TaskResultStatus.FAILED
    assert "lapsed" in lapses.errors[0].traceback
    with Client(URL) as client:
        assert client.queues("django.results") == []
        assert [row.size for row in client.queue_rows("django.results", system=True)] == [3]


if __name__ == "__main__":
    globals()[sys.argv[1]]()
    sys.stdout.write("held\n")
