"""An application on taskiq, and what it is tried for: told by its exit code."""

import asyncio
import os
import sys
import time

from taskiq import AckableMessage, InMemoryBroker

from quorate.taskiq import QuorateBroker

broker = QuorateBroker(os.environ["QUORATE_URL"], queue="tasks", also=("urgent",), lease=2)


@broker.task
async def work(name, seconds):
    with open(os.environ["NOTES"], "a") as notes:
        notes.write(f"{name} {time.time()}\n")
    await asyncio.sleep(seconds)
    with open(os.environ["NOTES"], "a") as notes:
        notes.write(f"{name} done\n")


def registered(listening):
    """A task that the broker knows, as it is sent."""
    task = listening.register_task(work.original_func, task_name="work")
    return listening.formatter.dumps(task.kicker()._prepare_message("x", 0))


async def first(listening):
    return await anext(listening.listen())


async def listeners():
    """One of two listeners gets a task; who has not acknowledged it keeps it; who listens no more takes none.

    What taskiq-redis tests of its list and its stream, whose source distribution has no tests to run.
    """
    other = QuorateBroker(os.environ["QUORATE_URL"], queue="two", lease=1)
    await other.startup()
    tasks = [asyncio.create_task(first(other)) for _ in range(2)]
    await asyncio.sleep(0.3)
    message = registered(other)
    await other.kick(message)
    done, waiting = await asyncio.wait(tasks, timeout=5, return_when=asyncio.FIRST_COMPLETED)
    assert (len(done), len(waiting)) == (1, 1)
    got = done.pop().result()
    assert isinstance(got, AckableMessage)
    assert got.data == message.message
    await asyncio.sleep(2.5)  # longer than a lease
    assert not waiting.copy().pop().done(), "it is kept in flight"
    await got.ack()
    rest = waiting.pop()
    rest.cancel()
    await asyncio.gather(rest, return_exceptions=True)
    await asyncio.gather(*[other.kick(message) for _ in range(50)])
    assert (await other.client.monitor("two"))["ready"] == 50
    await other.shutdown()
    await few_connections()


async def few_connections():
    """Three listen and fifty send by one client that has four requests open at most: none of it waits for another."""
    few = QuorateBroker(os.environ["QUORATE_URL"], queue="few", max_in_flight=4)
    await few.startup()
    tasks = [asyncio.create_task(first(few)) for _ in range(3)]
    await asyncio.sleep(0.3)
    raw = registered(few)
    await asyncio.wait_for(asyncio.gather(*[few.kick(raw) for _ in range(50)]), 5)
    got = await asyncio.wait_for(asyncio.gather(*tasks), 5)
    assert [one.data for one in got] == [raw.message] * 3
    for one in got:
        await one.ack()
    assert (await few.client.monitor("few"))["size"] == 47
    await few.shutdown()


async def sending():
    await broker.startup()
    begun = time.time()
    await work.kiq("plain", 0)
    await work.kicker().with_labels(queue_name="urgent", priority=5).kiq("urgent", 0)
    await work.kicker().with_labels(delay=1.5).kiq("delayed", 0)
    await work.kiq("long", 5)
    await broker.client.produce("tasks", {"no": "task"})
    await broker.client.produce("tasks", "no task either")
    unknown = work.kicker()._prepare_message("x", 0).model_copy(update={"task_name": "of.tomorrow"})
    await broker.kick(broker.formatter.dumps(unknown))
    sys.stdout.write(f"{begun}\n")
    await broker.shutdown()


if __name__ == "__main__":
    assert InMemoryBroker
    asyncio.run({"send": sending, "listeners": listeners}[sys.argv[1]]())
