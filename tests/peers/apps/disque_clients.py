"""redis-py with its defaults, and pydisque over it, on a node's port for Disque: prints what each found."""

import os

import redis
from pydisque.client import Client

port = int(os.environ["DISQUE_PORT"])
plain = redis.Redis(port=port)
assert plain.ping()
job = plain.execute_command("ADDJOB", "mail", b"\xff hello", 100)
[[queue, same, body]] = plain.execute_command("GETJOB", "FROM", "mail")
assert (queue, same, body) == (b"mail", job, b"\xff hello")
assert plain.execute_command("ACKJOB", job) == 1
assert plain.execute_command("GETJOB", "NOHANG", "FROM", "mail") is None
assert plain.info()["disque_version"] == "1.0-rc1"
assert plain.config_get("maxclients") == {"maxclients": "10000"}
pipe = plain.pipeline(transaction=False)
for number in range(5):
    pipe.execute_command("ADDJOB", "many", str(number), 0)
assert len({*pipe.execute()}) == 5
assert plain.client_setname("worker")
assert plain.client_getname() == "worker"
assert any(one["name"] == "worker" for one in plain.client_list())

client = Client([f"127.0.0.1:{port}"])
client.connect()
job = client.add_job("tasks", "one", timeout=100, retry=5, ttl=600, delay=0)
[(_, got, payload)] = client.get_job(["tasks"], timeout=1000)
assert (got, payload) == (job, b"one")
client.nack_job(got)
[(_, got, _, nacks, additional)] = client.get_job(["tasks"], nohang=True, withcounters=True)
assert (nacks, additional) == (1, 0)
assert client.working(got) == 5
assert client.show(got, return_dict=True)[b"state"] == b"active"
assert client.qlen("tasks") == 0
client.ack_job(got)
assert client.show(got) is None
assert client.qstat("many", return_dict=True)[b"len"] == 5
assert client.pause("many", kw_out=True) in (b"out", "out")
assert client.get_job(["many"], nohang=True) == []
assert {*client.qscan()[1]} >= {b"many"}
assert len(client.jscan(queue="many", reply="id")[1]) == 5
print("disque clients: all is well")
