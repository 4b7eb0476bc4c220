"""An application on dramatiq: notes each task that begins in a file."""

import os
import time

import dramatiq

from quorate.dramatiq import QuorateBroker

broker = QuorateBroker(os.environ["QUORATE_URL"], namespace="app", lease=3)
dramatiq.set_broker(broker)


@dramatiq.actor(max_retries=0)
def work(name, seconds):
    with open(os.environ["NOTES"], "a") as notes:
        notes.write(f"{name} {time.time()}\n")
    time.sleep(seconds)
    with open(os.environ["NOTES"], "a") as notes:
        notes.write(f"{name} done\n")
