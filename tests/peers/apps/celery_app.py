"""An application on Celery: notes each task that begins in a file."""

import os
import time

from celery import Celery

app = Celery("app", broker=os.environ["QUORATE_URL"])
app.conf.broker_transport = "quorate.kombu:Transport"
app.conf.broker_transport_options = {"lease": 3, "prefix": "app."}
app.conf.task_acks_late = True
app.conf.worker_prefetch_multiplier = 1


@app.task
def work(name, seconds):
    with open(os.environ["NOTES"], "a") as notes:
        notes.write(f"{name} {time.time()}\n")
    time.sleep(seconds)
    with open(os.environ["NOTES"], "a") as notes:
        notes.write(f"{name} done\n")
