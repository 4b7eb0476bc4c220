"""Disque's jobs, queues and scans, over real sockets: what its clients send, and what they get."""

import time

import pytest

from bench.resp import Resp, RespError
from tests.cluster import wait_for
from tests.conformance.disque import listening, port_of, shown
from tests.conftest import StartNode
from tests.node import Node

# -- jobs --------------------------------------------------------------------------------------------------------------


def test_a_job_is_added_got_and_acknowledged_and_its_id_is_what_clients_read_in_it(disque: Resp) -> None:
    job = disque.ask("ADDJOB", "mail", b"body \xff\r\n", 0)
    assert len(job) == 40
    own = disque.ask("HELLO")[1].decode()
    assert job[2:10] == own[:8], "the node that led"
    assert job[36:] == "05a1"
    assert disque.line("GETJOB FROM mail") == [[b"mail", job.encode(), b"body \xff\r\n"]]
    assert disque.ask("ACKJOB", job) == 1
    assert disque.ask("ACKJOB", job) == 0
    assert disque.ask("SHOW", job) is None


@pytest.mark.parametrize(
    ("options", "ending"),
    [("TTL 10", "0001"), ("RETRY 0 REPLICATE 1", "05a0"), ("TTL 100000000", "ffff"), ("TTL 120 RETRY 0 ASYNC", "0002")],
)
def test_the_last_digits_of_an_id_tell_time_to_live_and_whether_it_may_come_again(
    disque: Resp, options: str, ending: str
) -> None:
    assert disque.line(f"ADDJOB q x 0 {options}")[36:] == ending


ADDJOB_ERRORS = {
    "REPLICATE 0": "ERR REPLICATE must be between 1 and 65535",
    "REPLICATE 65536": "ERR REPLICATE must be between 1 and 65535",
    "TTL 0": "ERR TTL must be a number > 0",
    "TTL x": "ERR TTL must be a number > 0",
    "RETRY -1": "ERR RETRY time must be a non negative number",
    "DELAY -1": "ERR DELAY time must be a non negative number",
    "MAXLEN 0": "ERR MAXLEN must be a positive number",
    "NOSUCH": "ERR syntax error",
    "TTL": "ERR syntax error",
    "DELAY 5 TTL 5": "ERR The specified DELAY is greater than TTL. Job refused since would never be delivered",
    "RETRY 0 REPLICATE 2": ("ERR With RETRY set to 0 please explicitly set  REPLICATE to 1 (at-most-once delivery)"),
    "REPLICATE 2": "NOREPL Not enough reachable nodes for the requested replication level",
    "REPLICATE 65": "NOREPL Not enough reachable nodes for the requested replication level",
    "RETRY 31536001": "ERR RETRY is over a year (31536000 seconds)",
    "TTL 9223372036854775807": "ERR TTL ends behind the year 9999",
    "TTL 251900000000": "ERR",
    "PRIORITY x": "ERR PRIORITY must be a number from -2147483648 to 2147483647",
    "TTL 0 REPLICATE 0": "ERR TTL must be a number > 0",
}


@pytest.mark.parametrize("options", ADDJOB_ERRORS)
def test_what_no_job_can_be_is_refused_in_disques_words(disque: Resp, options: str) -> None:
    said = disque.line(f"ADDJOB q x 0 {options}")
    assert isinstance(said, RespError)
    assert said.startswith(ADDJOB_ERRORS[options])
    assert disque.line("QLEN q") == 0


def test_a_time_out_is_looked_at_behind_the_options(disque: Resp) -> None:
    assert disque.line("ADDJOB q x abc") == "ERR timeout is not an integer or out of range"
    assert disque.line("ADDJOB q x -1") == "ERR timeout is negative"
    assert disque.line("ADDJOB q x abc TTL 0") == "ERR TTL must be a number > 0"


def test_options_count_the_last_time_they_stand_there_and_whatever_their_case(disque: Resp) -> None:
    job = disque.line("addjob q x 100 ttl 50 RETRY 7 Ttl 600 delay 2 dElAy 1")
    about = shown(disque, job)
    assert (about["ttl"], about["retry"], about["delay"], about["state"]) == (599, 7, 1, b"active")
    assert 0 < about["next-requeue-within"] <= 1000
    assert about["next-awake-within"] == about["next-requeue-within"]


def test_a_key_is_taken_once_and_priorities_come_first(disque: Resp) -> None:
    first = disque.line("ADDJOB q a 0 KEY k")
    assert disque.line("ADDJOB q b 0 KEY k") == f"DUPLICATE {first}"
    disque.line("ADDJOB q c 0 PRIORITY 5")
    assert [row[2] for row in disque.line("GETJOB COUNT 5 FROM q")] == [b"c", b"a"]


def test_maxlen_counts_what_is_ready(disque: Resp) -> None:
    disque.line("ADDJOB q a 0 DELAY 100")
    assert disque.line("ADDJOB q b 0 MAXLEN 1")[:2] == "D-"
    assert disque.line("ADDJOB q c 0 MAXLEN 1") == "MAXLEN Queue is already longer than the specified MAXLEN count"
    for _ in range(2):
        disque.send("ADDJOB", "p", "x", 0, "MAXLEN", 1)
    assert [str(disque.read())[:6] for _ in range(2)][1] == "MAXLEN", "also what is not committed yet"


def test_queues_are_taken_from_in_turn(disque: Resp) -> None:
    for queue, bodies in (("a", "a0 a1 a2"), ("b", "b0 b1"), ("c", "c0")):
        for body in bodies.split():
            disque.ask("ADDJOB", queue, body, 0)
    got = disque.line("GETJOB COUNT 5 FROM a b c none")
    assert [row[2].decode() for row in got] == ["a0", "b0", "c0", "a1", "b1"]
    assert [row[0] for row in got][:3] == [b"a", b"b", b"c"]


def test_who_waits_gets_one_job_and_they_are_served_in_their_order(disque_node: Node, disque: Resp) -> None:
    with Resp(port_of(disque_node)) as first, Resp(port_of(disque_node)) as second:
        first.send("GETJOB", "COUNT", 10, "FROM", "x", "q")
        wait_for(lambda: dict(zip(*[iter(disque.ask("QSTAT", "q"))] * 2, strict=True))[b"blocked"] == 1)
        second.send("GETJOB", "TIMEOUT", 10_000, "FROM", "q")
        wait_for(lambda: dict(zip(*[iter(disque.ask("QSTAT", "q"))] * 2, strict=True))[b"blocked"] == 2)
        disque.ask("ADDJOB", "q", "1", 0)
        disque.ask("ADDJOB", "q", "2", 0)
        assert [row[2] for row in first.read()] == [b"1"]
        assert [row[2] for row in second.read()] == [b"2"]


def test_nothing_there_is_nil_and_what_stands_behind_a_wait_is_not_begun(disque: Resp) -> None:
    assert disque.line("GETJOB NOHANG FROM q") is None
    begun = time.monotonic()
    disque.send("GETJOB", "TIMEOUT", 300, "FROM", "q")
    disque.send("ADDJOB", "q", "later", 0)
    assert disque.read() is None, "the job behind it is not there for it"
    assert time.monotonic() - begun >= 0.29
    assert disque.read()[:2] == "D-"
    assert disque.line("GETJOB COUNT 0 FROM q") == "ERR COUNT must be a number greater than zero"
    for wrong in ("GETJOB NOHANG", "GETJOB FROM", "GETJOB what FROM q", "GETJOB TIMEOUT"):
        assert disque.line(wrong) == "ERR syntax error" if len(wrong.split()) > 1 else True


def test_nacks_and_other_deliveries_are_counted(disque: Resp) -> None:
    job = disque.line("ADDJOB q x 0 RETRY 1")
    disque.line("GETJOB FROM q")
    assert disque.ask("NACK", job) == 1
    [row] = disque.line("GETJOB WITHCOUNTERS FROM q")
    assert row[3:] == [b"nacks", 1, b"additional-deliveries", 0]
    [row] = disque.line("GETJOB WITHCOUNTERS FROM q")
    assert row[3:] == [b"nacks", 1, b"additional-deliveries", 1], "its retry time is over"
    assert disque.ask("ENQUEUE", job) == 1
    about = shown(disque, job)
    assert (about["nacks"], about["additional-deliveries"], about["state"]) == (1, 2, b"queued")
    assert disque.ask("NACK", job) == 0, "it is queued already"


def test_a_job_is_taken_off_its_queue_and_comes_back(disque: Resp) -> None:
    job = disque.line("ADDJOB q x 0 RETRY 1")
    assert disque.ask("DEQUEUE", job, job) == 1
    assert disque.line("QLEN q") == 0
    assert shown(disque, job)["state"] == b"active"
    assert disque.ask("DEQUEUE", job) == 0
    [row] = disque.line("GETJOB WITHCOUNTERS TIMEOUT 5000 FROM q")
    assert row[4] == row[6] == 0
    assert disque.ask("NACK", job, "DELAY", 100) == 1
    assert shown(disque, job)["next-requeue-within"] > 90_000
    assert disque.ask("ENQUEUE", job) == 1
    assert disque.line("QLEN q") == 1


def test_at_most_once_jobs_stay_until_they_are_acknowledged_and_come_once(disque_node: Node, disque: Resp) -> None:
    job = disque.line("ADDJOB q x 0 RETRY 0 REPLICATE 1")
    assert disque.line("GETJOB FROM q")[0][1].decode() == job
    about = shown(disque, job)
    assert (about["state"], about["next-requeue-within"], about["repl"]) == (b"active", None, 1)
    assert disque.ask("NACK", job) == disque.ask("ENQUEUE", job) == disque.ask("WORKING", job) == 0
    other = disque.line("ADDJOB q y 0 RETRY 0 REPLICATE 1")
    assert disque.ask("DEQUEUE", other) == 1
    assert disque.ask("ENQUEUE", other) == 0
    disque_node.kill()
    disque_node.start()
    with Resp(port_of(disque_node)) as again:
        assert again.line("GETJOB NOHANG FROM q") is None
        assert shown(again, job)["state"] == b"active"
        assert again.ask("ACKJOB", job, other) == 2


def test_working_postpones_and_not_beyond_half_of_a_jobs_life(disque: Resp) -> None:
    job = disque.line("ADDJOB q x 0 RETRY 100 TTL 1000")
    disque.line("GETJOB FROM q")
    assert disque.ask("WORKING", job) == 100
    queued = disque.line("ADDJOB q y 0 RETRY 50 TTL 1000")
    assert disque.ask("WORKING", queued) == 50
    assert disque.line("QLEN q") == 0
    delayed = disque.line("ADDJOB q z 0 RETRY 60 TTL 1000 DELAY 10")
    assert disque.ask("WORKING", delayed) == 60
    assert shown(disque, delayed)["next-requeue-within"] > 50_000
    late = disque.line("ADDJOB q w 0 RETRY 5 TTL 1")
    time.sleep(0.6)
    assert disque.ask("WORKING", late).startswith("TOOLATE Half of job TTL already elapsed")
    assert disque.ask("WORKING", "D-dcb833cf-8YL1NT17e9+wsA/09NqxscQI-05a1").startswith("NOJOB")


def test_a_job_goes_when_its_time_is_over_wherever_it_is(disque_node: Node, disque: Resp) -> None:
    jobs = {name: disque.line(f"ADDJOB {name} x 0 TTL 1 RETRY 100") for name in ("seen", "unseen")}
    kept = disque.line("ADDJOB kept x 0 TTL 1 RETRY 0 REPLICATE 1")
    with disque_node.client() as client:
        client.configure("buried", dead_letter="dead")
    dead = disque.line("ADDJOB buried x 0 TTL 1")
    disque.line("GETJOB FROM seen")
    disque.line("GETJOB FROM kept")
    wait_for(lambda: all(disque.ask("SHOW", job) is None for job in (*jobs.values(), kept)))
    [row] = wait_for(lambda: disque.line("QPEEK dead 5"))
    assert row[0] == b"dead"
    assert row[1][11:35] == dead[11:35].encode(), "its id names the same message"


def test_bad_ids_do_nothing_and_foreign_ones_are_not_there(disque: Resp) -> None:
    job = disque.line("ADDJOB q x 0")
    foreign = "D-dcb833cf-8YL1NT17e9+wsA/09NqxscQI-05a1"
    for command in ("ACKJOB", "FASTACK", "DELJOB", "NACK", "ENQUEUE", "DEQUEUE"):
        assert disque.ask(command, job, "D-short") == "BADID Invalid Job ID format."
        assert disque.ask(command, foreign) == 0
        assert disque.ask(command) == 0
    assert disque.ask("SHOW", "D-x") == "BADID Invalid Job ID format."
    assert disque.ask("SHOW", foreign) is None
    informs = f"D-00000000-{job[11:35]}-0000"
    assert disque.ask("FASTACK", informs, foreign) == 1, "only what names the message counts"


def test_a_removed_job_stands_in_the_log_as_removed(disque_node: Node, disque: Resp) -> None:
    job = disque.line("ADDJOB q x 0")
    assert disque.ask("DELJOB", job) == 1
    with disque_node.client() as client:
        wait_for(lambda: client.log()["records"][-1]["kind"] == "clear")


# -- queues, scans -----------------------------------------------------------------------------------------------------


def test_queues_are_told_of_peeked_into_and_flushed(disque: Resp) -> None:
    assert disque.line("QSTAT q") is None
    assert disque.line("QLEN q") == 0
    assert disque.line("QPEEK q 5") == []
    for body in "abc":
        disque.ask("ADDJOB", "q", body, 0)
    assert [row[2] for row in disque.line("QPEEK q 2")] == [b"a", b"b"]
    assert [row[2] for row in disque.line("QPEEK q -2")] == [b"c", b"b"]
    assert disque.line("QPEEK q x") == "ERR value is not an integer or out of range"
    disque.line("GETJOB FROM q")
    told = disque.line("QSTAT q")
    names = "name len age idle blocked import-from import-rate jobs-in jobs-out pause"
    assert [name.decode() for name in told[::2]] == names.split()
    assert told[1::2][:2] == [b"q", 2]
    assert told[1::2][5:] == [[], 0, 3, 1, b"none"]
    assert disque.line("QFLUSH q") == 3
    assert disque.line("QLEN q") == 0


def test_scans_give_everything_once_in_pieces(disque: Resp) -> None:
    jobs = {disque.ask("ADDJOB", f"queue-{number}", "x", 0) for number in range(250)}
    for command, wanted in (("QSCAN", {f"queue-{number}" for number in range(250)}), ("JSCAN", jobs)):
        found: list[str] = []
        cursor = b"0"
        for _ in range(300):
            cursor, rows = disque.ask(command, cursor, "COUNT", 20)
            found += [row.decode() if isinstance(row, bytes) else row for row in rows]
            if cursor == b"0":
                break
        assert set(found) == wanted
        whole = disque.ask(command, "BUSYLOOP")
        assert whole[0] == b"0"
        assert len(whole[1]) == 250
    assert disque.line("QSCAN MINLEN 2 BUSYLOOP")[1] == []
    assert disque.line("QSCAN IMPORTRATE 1 BUSYLOOP")[1] == []
    assert disque.line("QSCAN what") == "ERR invalid cursor or option name"
    assert disque.line("QSCAN 0 0") == "ERR syntax error"
    disque.line("GETJOB FROM queue-7")
    [row] = disque.line("JSCAN QUEUE queue-7 STATE active REPLY all BUSYLOOP")[1]
    assert row[2:6] == [b"queue", b"queue-7", b"state", b"active"]
    assert disque.line("JSCAN BUSYLOOP STATE active STATE queued")[1].__len__() == 250
    assert disque.line("JSCAN STATE nosuch") == "ERR Invalid job state name"
    assert disque.line("JSCAN REPLY x") == "ERR Invalid REPLY type, try ID or ALL"


def test_a_queue_takes_nothing_in_or_gives_nothing_out(disque_node: Node, disque: Resp) -> None:
    job = disque.line("ADDJOB q x 0 RETRY 1")
    disque.line("GETJOB FROM q")
    assert disque.line("PAUSE q in") == "in"
    assert disque.line("ADDJOB q y 0") == "PAUSED Queue paused in input, try later"
    with disque_node.client() as client, pytest.raises(Exception, match="paused"):
        client.produce("q", "z")
    time.sleep(1.3)
    assert disque.line("QLEN q") == 0, "its retry time is over, and it is held back"
    assert disque.line("PAUSE q in out") == "all"
    assert disque.ask("NACK", job) == 1
    assert disque.line("QLEN q") == 1
    assert disque.line("GETJOB NOHANG FROM q") is None
    assert disque.line("PAUSE q out bcast") == "out"
    assert disque.line("PAUSE q nosuch") == "ERR syntax error"
    assert disque.line("PAUSE q state") == "out"
    assert disque.line("PAUSE q none") == "none"
    assert disque.line("GETJOB FROM q")[0][1].decode() == job


def test_a_queue_that_a_job_made_goes_when_it_is_empty_and_others_stay(start_node: StartNode) -> None:
    node = start_node(listeners=[listening()], idle_queue_s=0.3)
    with Resp(port_of(node)) as disque, node.client() as client:
        client.produce("json", "x", retry=5)
        client.produce("both", "x", retry=5)
        for queue in ("mine", "both", "set", "paused"):
            disque.ask("ACKJOB", disque.ask("ADDJOB", queue, "x", 0))
        client.configure("set", max_size=100)
        disque.line("PAUSE paused out")
        for queue in ("json", "both"):
            message = client.consume(queue)
            assert message is not None
            client.confirm(message)
        wait_for(lambda: "mine" not in client.queues())
        assert set(client.queues()) == {"both", "json", "paused", "set"}


# -- with JSON at the same time ----------------------------------------------------------------------------------------


def test_one_queue_is_used_by_both_protocols_at_once(disque_node: Node, disque: Resp) -> None:
    with disque_node.client() as client:
        client.produce("q", "text ü", retry=30)
        client.produce("q", {"n": [1]}, retry=30)
        got = disque.line("GETJOB COUNT 2 FROM q")
        assert [row[2] for row in got] == ["text ü".encode(), b'{"n":[1]}']
        assert all(row[1].startswith(b"D-") for row in got)
        assert disque.ask("ACKJOB", *[row[1] for row in got]) == 2
        disque.ask("ADDJOB", "q", b"\xff\x00", 0)
        message = client.consume("q")
        assert message is not None
        assert message.data == b"\xff\x00"
        client.confirm(message)


def test_show_tells_how_many_nodes_a_job_was_to_be_on_and_async_does_not_wait_for_them(disque: Resp) -> None:
    """Found by Disque's own tests: of an ASYNC job SHOW said one node."""
    job = disque.line("ADDJOB q x 0 REPLICATE 3 ASYNC")
    facts = shown(disque, job)
    assert (facts["repl"], len(facts["nodes-delivered"])) == (3, 1), "there is one node"
    assert shown(disque, disque.line("ADDJOB q x 0 RETRY 0 ASYNC"))["repl"] == 1
    assert disque.line("ADDJOB q x 0 REPLICATE 3").startswith("NOREPL")
