"""gmq's protocol without a node: calls to requests, replies to lines."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from msgspec import Raw

from net.node_facts import NodeFacts
from net.protocols.gmq_session import GONE, GmqSession, number_in
from net.protocols.session import Ask, Close, Found, RequestLimits, Say
from quorate.go_json import compact, escaped, readable
from quorate.protocol import TIME_MAX_S, Action, Code, ErrorWord, Reply, Request, Told
from tests.cost import calls_of, growth, peak_of

NOW = 1_800_000_000.0
OF_STRING = "json: cannot unmarshal {} into Go value of type string"


def session(shards: int = 1) -> GmqSession:
    return GmqSession(RequestLimits(), NodeFacts(1, 7, shards))


def call(data: bytes | str, shards: int = 1) -> Found:
    """What one call makes."""
    [found] = session(shards).receive(data.encode() if isinstance(data, str) else data)
    return found


def asked(data: bytes | str, shards: int = 1) -> Ask:
    found = call(data, shards)
    assert isinstance(found, Ask)
    return found


def line(found: Found) -> str:
    assert isinstance(found, Say)
    return found.data.decode()


def answer(found: Ask, reply: Reply) -> str:
    made = session().answered(found.request, reply, found.note)
    assert isinstance(made, bytes)
    return made.decode()


def error(text: str) -> str:
    return f'{{"id":1,"result":null,"error":{json.dumps(text)}}}\n'


def result(told: str) -> str:
    return f'{{"id":1,"result":{told},"error":null}}\n'


def push(job: str) -> str:
    return f'{{"method":"Service.Push","params":[{job}],"id":1}}'


def test_a_push_is_a_produce_with_a_key_that_is_unique_among_all() -> None:
    php = (
        rb'{"method":"Service.Push","params":[{"id":"xxxx_id1574300000.12341234567","topic":"topic_3",'
        rb'"body":"this is \u00fc a\/b test","delay":"17","TTR":"4"}],"id":"gmq5dd6a0c2b3f41"}' + b"\n"
    )
    found = asked(php)
    request = found.request
    assert (request.action, request.queue, request.key) == (Action.PRODUCE, "topic_3", "xxxx_id1574300000.12341234567")
    assert (request.delay, request.retry, request.ttl, request.scope) == (17.0, 7.0, float(TIME_MAX_S), "all")
    assert (request.asked_delay, request.ttr, request.as_job) == (17, 4, None)
    assert bytes(request.data) == '"this is ü a/b test"'.encode()
    done = answer(found, Reply(action=1, code=Code.OK, msg_id=1))
    assert done == '{"id":"gmq5dd6a0c2b3f41","result":"success","error":null}\n'


@pytest.mark.parametrize(
    ("delay", "ttr", "request_delay", "retry", "asked_delay", "told_ttr"),
    [
        ("", "", None, 0.0, None, 0),
        ("x", "1.5", None, 0.0, None, 0),
        ("-3", "-2", None, 0.0, -3, -2),
        ("+07", "1", 7.0, 4.0, 7, 1),
        ("99999999999", "99999999999", 31_536_000.0, 31_536_000.0, 99_999_999_999, 99_999_999_999),
        ("9223372036854775808", "9" * 30, None, 0.0, None, 0),
    ],
)
def test_delay_and_ttr_as_they_are_pushed(
    delay: str, ttr: str, request_delay: float | None, retry: float, asked_delay: int | None, told_ttr: int | None
) -> None:
    request = asked(push(f'{{"id":"a","topic":"t","delay":"{delay}","TTR":"{ttr}"}}')).request
    found = (request.delay, request.retry, request.asked_delay, request.ttr)
    assert found == (request_delay, retry, asked_delay, told_ttr)


@pytest.mark.parametrize(
    ("job", "said"),
    [
        ("{}", result('"job.id is empty"')),
        ("null", result('"job.id is empty"')),
        ('{"id":"","topic":"t"}', result('"job.id is empty"')),
        ('{"id":null,"topic":"t"}', result('"job.id is empty"')),
        ('{"id":"a"}', result('"job.topic is empty"')),
        ('{"id":"a","topic":""}', result('"job.topic is empty"')),
        ('{"id":1,"topic":"t"}', error(OF_STRING.format("number"))),
        ('{"id":"a","topic":"t","delay":1.5}', error(OF_STRING.format("number"))),
        ('{"id":"a","topic":"t","TTR":true}', error(OF_STRING.format("bool"))),
        ('{"id":"a","topic":"t","body":{}}', error(OF_STRING.format("object"))),
        ('{"id":"a","topic":["t","u"]}', error(OF_STRING.format("array"))),
        ('{"id":"a","topic":[1]}', error(OF_STRING.format("array"))),
        ('{"id":["a"],"topic":"t"}', error(OF_STRING.format("array"))),
        ('"x"', error("json: cannot unmarshal string into Go value of type map[string]string")),
        ("[1]", error("json: cannot unmarshal array into Go value of type map[string]string")),
        ('{"id":"a\\n","topic":"t"}', error("field_error: id holds the control character '\\n'")),
        ('{"id":"a","topic":"' + "t" * 256 + '"}', error("field_error: topic is longer than 255 bytes of UTF-8")),
    ],
)
def test_what_is_pushed_wrong_is_said_as_gmq_says_it(job: str, said: str) -> None:
    assert line(call(push(job))) == said


def test_whole_numbers_a_list_of_one_and_other_names_are_taken() -> None:
    job = '{"id":"a","topic":["t"],"delay":3,"TTR":-1,"consume_num":5,"status":{"x":1},"body":null}'
    request = asked(push(job)).request
    assert (request.queue, request.delay, request.retry, request.ttr) == ("t", 3.0, 0.0, -1)
    assert bytes(request.data) == b'""'


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ('{"method":"Service.Push","id":1}', error("jsonrpc: request body missing params")),
        ('{"method":"Service.Push","params":null,"id":1}', error("jsonrpc: request body missing params")),
        ('{"method":"Service.Push","params":[],"id":1}', result('"job.id is empty"')),
        (
            '{"method":"Service.Push","params":{},"id":1}',
            error("json: cannot unmarshal object into Go value of type [1]interface {}"),
        ),
        (
            '{"method":"Service.Ack","params":"x","id":1}',
            error("json: cannot unmarshal string into Go value of type [1]interface {}"),
        ),
        ('{"method":"Service.Pop","params":[],"id":1}', error("topics is empty")),
        ('{"method":"Service.Pop","params":[[]],"id":1}', error("topics is empty")),
        (
            '{"method":"Service.Pop","params":["t"],"id":1}',
            error("json: cannot unmarshal string into Go value of type []string"),
        ),
        ('{"method":"Service.Pop","params":[["t",1]],"id":1}', error(OF_STRING.format("number"))),
        ('{"method":"Service.Pop","params":[[""]],"id":1}', error("empty")),
        ('{"method":"Service.Ack","params":[1],"id":1}', error(OF_STRING.format("number"))),
        ('{"method":"Service.Ack","params":[],"id":1}', error(GONE)),
        ('{"method":"Service.Nope","params":[1],"id":1}', error("rpc: can't find method Service.Nope")),
        ('{"method":"service.push","params":[1],"id":1}', error("rpc: can't find service service.push")),
        ('{"method":"Push","params":[1],"id":1}', error("rpc: service/method request ill-formed: Push")),
        ('{"params":[1],"id":1}', error("rpc: service/method request ill-formed: ")),
    ],
)
def test_calls_that_are_wrong(words: str, said: str) -> None:
    assert line(call(words)) == said


def test_a_list_of_too_many_topics_is_refused_before_they_are_made() -> None:
    names = ",".join(['""'] * 5_000)
    assert line(call(f'{{"method":"Service.Pop","params":[[{names}]],"id":1}}')) == error(
        "field_error: more than 1000 topics"
    )


def test_a_call_of_very_many_values_is_refused_by_its_id_before_they_are_made() -> None:
    for params in ("[[" + ",".join(['""'] * 500_000) + "]]", '[{"id":1,' + ",".join(['"f":{}'] * 300_000) + "}]"):
        assert line(call(f'{{"method":"Service.Pop","params":{params},"id":7}}')) == (
            '{"id":7,"result":null,"error":"too_large: a call may have 10000 values, it has more"}\n'
        )


@pytest.mark.parametrize(
    "data",
    [
        *(
            "1 ",
            '"x"',
            "null",
            "[1]",
            "GET / HTTP/1.1\r\n",
            "\x16\x03\x01",
            "}",
            '{"method":7}',
            '{"method":["x"]}',
            "{]",
        ),
        *(
            '{"method":"Service.Push","params":[tru]}',
            '{"id":' + "[" * 40 + "]" * 40 + ',"method":"Service.Ack"}',
        ),
    ],
)
def test_what_is_no_call_ends_the_connection_silently(data: str) -> None:
    good = '{"method":"Service.Ack","params":["a"],"id":1}'
    found = session().receive((good + data + good).encode())
    assert isinstance(found[0], Ask)
    assert isinstance(found[1], Close)
    assert len(found) == 2


@pytest.mark.parametrize(
    ("came", "told"),
    [
        ("", "null"),
        (',"id":null', "null"),
        (',"id": [1, {"a" : "b c"} ] ', '[1,{"a":"b c"}]'),
        (',"id":1.50e3', "1.50e3"),
        (',"id":"<\\u00e9&>"', '"\\u003c\\u00e9\\u0026\\u003e"'),
        (',"ID":3', "3"),
        (',"id":1,"ID":2,"id":3', "3"),
        (',"id":1,"iD":2', "2"),
    ],
)
def test_an_id_is_told_as_it_came(came: str, told: str) -> None:
    said = line(call('{"METHOD":"Service.Nope","x":{"id":9}' + came + "}"))
    assert said.startswith('{"id":' + told + ',"result":null,"error":"rpc')


def test_a_call_with_more_members_of_any_size_is_a_call() -> None:
    big = "x" * 600_000
    assert asked(f'{{"jsonrpc":"2.0","params":["a"],"x":"{big}","id":1,"method":"Service.Ack"}}').request.key == "a"
    number = "9" * 5000
    found = asked(f'{{"Method":"Service.Nope","METHOD":"Service.Ack","n":{number},"params":["a"]}}')
    assert found.request.key == "a"
    assert call(f'{{"method":"Service.Ack","params":["a"],"id":"{"x" * 70_000}"}}') == Close()


def pushed(body: bytes) -> bytes:
    return b'{"method":"Service.Push","params":[{"id":"a","topic":"t","body":"' + body + b'"}]}'


@pytest.mark.parametrize("pieces", [1, 2])
def test_a_call_is_never_larger_than_it_may_be(pieces: int) -> None:
    """Read whole it was not looked at, where calls may be shorter than what counts as large."""
    data = pushed(b"x" * 1500)
    small = GmqSession(RequestLimits(request_bytes_max=1024))
    cut = len(data) // pieces
    found = [one for at in range(0, len(data), cut) for one in small.receive(data[at : at + cut])]
    assert found == [Close()]


HOSTILE: dict[str, Callable[[int], bytes]] = {
    "halves": lambda size: pushed(b"\\ud800" * (size // 6)),
    "half": lambda size: pushed(b"\\ud800" + b"\\n" * (size // 2)),
    "umlauts": lambda size: pushed(b"\\u00e9" * (size // 6)),
    "no UTF-8": lambda size: pushed(b"\xff" * size),
    "backslashes": lambda size: b'{"method":"Service.Ack","params":["' + b"\\\\" * (size // 2) + b'"]}',
    "methods": lambda size: b'{"method":"' + b"<." * (size // 2) + b'"}',
    "spaces in an id": lambda size: b'{"method":"Service.Nope","id":[' + b'"" ,' * (size // 4) + b"1]}",
    "spaces in params": lambda size: b'{"method":"Service.Pop","params":[[' + b'"" ,' * (size // 4) + b'"a"]]}',
    "many members": lambda size: b"{" + b",".join(b'"%d":1' % number for number in range(size // 11)) + b"}",
    "one id again and again": lambda size: b"{" + b'"ID":1,' * (size // 7) + b'"method":"x"}',
}


@pytest.mark.parametrize("name", HOSTILE)
def test_millions_of_the_worst_bytes_are_judged_without_a_call_for_each(name: str) -> None:
    """Compiled 60 ms at most, on a machine of its own; a second, when each sign was a call."""
    whole, part = HOSTILE[name](1_600_000), HOSTILE[name](200_000)
    assert calls_of(lambda: session().receive(whole)) < len(whole) / 1000
    assert peak_of(lambda: session().receive(whole)) < 6 * len(whole)
    assert growth(lambda: session().receive(part), lambda: session().receive(whole)) < 24


def test_halves_of_surrogate_pairs_and_bytes_that_are_no_utf8_are_one_sign() -> None:
    found = asked(
        b'{"method":"Service.Push","params":[{"id":"\\ud800a\xff","topic":"t","body":"\\\\ud800\\ud83d\\ude00"}]}'
    )
    assert found.request.key == "\ufffda\ufffd"
    assert bytes(found.request.data) == '"\\\\ud800😀"'.encode()


def popped(**fields: Any) -> Reply:
    """A consume's reply, for who asked with `ttr`."""
    facts: dict[str, Any] = {"key": "a1", "retry": 7.0, "ttr": 4, "delay": None}
    told = Told(**{name: fields.pop(name, value) for name, value in facts.items()})
    values: dict[str, Any] = {"queue": "topic_3", "msg_id": 2048, "data": Raw(b'"hello"'), "deliveries": 1}
    return Reply(action=2, code=0, told=told, **{**values, **fields})


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        (
            {"delay": 17},
            '{"TTR":"4","body":"hello","consume_num":"0","delay":"17","id":"a1","status":"3","topic":"topic_3"}',
        ),
        ({"deliveries": 3}, '"consume_num":"2"'),
        ({"retry": 0.0, "deliveries": 3}, '"consume_num":"0","delay":"0"'),
        ({"retry": 0.0, "ttr": -2}, '{"TTR":"-2"'),
        ({"key": None}, '"id":"2048"'),
        ({"key": None, "retry": 59.5, "ttr": None}, '{"TTR":"60"'),
        ({"data": Raw('"<é\u2028&>"'.encode())}, '"body":"\\u003cé\\u2028\\u0026\\u003e"'),
        ({"data": Raw(b'"a\\/\\u00fc"')}, '"body":"a/ü"'),
        ({"data": Raw(b'{"a": 1}')}, '"body":"{\\"a\\": 1}"'),
        ({"data": Raw(b"\xff\x00"), "encoding": "bytes"}, '"body":"/wA="'),
        ({"data": Raw(b'"plain"'), "encoding": "bytes"}, '"body":"\\"plain\\""'),
        ({"queue": "<t>", "key": "\u2028"}, '"id":"\\u2028","status":"3","topic":"\\u003ct\\u003e"'),
    ],
)
def test_a_job_as_a_pop_gives_it(fields: dict[str, Any], told: str) -> None:
    found = asked('{"method":"Service.Pop","params":[["b","a","b"]],"id":5}')
    assert found.request.queues == ["b", "a"]
    assert found.request.wait == 2.0
    said = answer(found, popped(**fields))
    assert said.startswith('{"id":5,"result":{"TTR":')
    assert said.endswith('},"error":null}\n')
    assert told in said


def test_a_pop_that_finds_nothing() -> None:
    found = asked('{"method":"Service.Pop","params":[["a"]],"id":1}')
    assert found.request.queue == "a"
    assert answer(found, Reply(action=2, code=0)) == error("empty")


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"code": 0, "confirmed": 1}, result("true")),
        ({"error": ErrorWord.NO_SUCH_MESSAGE}, error(GONE)),
        ({"error": ErrorWord.NOT_IN_FLIGHT, "state": "ready", "deliveries": 0}, error("Job is not be reserved")),
        (
            {"error": ErrorWord.NOT_IN_FLIGHT, "state": "ready", "deliveries": 2},
            error("TTR has expired and will be consumed again"),
        ),
        ({"error": ErrorWord.NOT_IN_FLIGHT, "state": "delayed", "deliveries": 0}, error("Unknown error")),
        ({"error": ErrorWord.NO_LEADER, "reason": "why"}, error("no_leader: why")),
    ],
)
def test_the_answers_to_an_ack(fields: dict[str, Any], said: str) -> None:
    found = asked('{"method":"Service.Ack","params":["a"],"id":1}')
    request = found.request
    assert (request.action, request.key, request.scope, request.held) == (Action.CONFIRM, "a", "all", True)
    assert answer(found, Reply(action=3, **{"code": -1, **fields})) == said.replace('\\\\\\"', '\\"')


def test_an_ack_of_a_number_is_of_a_message_where_no_job_has_it() -> None:
    found = asked('{"method":"Service.Ack","params":["2048"],"id":1}')
    missing = Reply(action=3, code=-1, error=ErrorWord.NO_SUCH_MESSAGE, reason="x")
    again = session().answered(found.request, missing, found.note)
    assert isinstance(again, Ask)
    assert (again.request.msg_id, again.request.key, again.request.held) == (2048, None, True)
    assert again.request.scope == "all", "of a job, whose key is another, it is not about"
    assert answer(again, Reply(action=3, code=0, confirmed=1)) == result("true")
    zero = asked('{"method":"Service.Ack","params":["02048"],"id":1}')
    assert isinstance(session().answered(zero.request, missing, zero.note), bytes)


def test_where_there_are_several_shards_all_are_asked_for_the_id_first() -> None:
    found = asked(push('{"id":"a","topic":"t"}'), shards=3)
    assert (found.request.action, found.request.key, found.request.scope) == (Action.FIND, "a", "all")
    exists = answer(found, Reply(action=25, code=0))
    assert exists == result('"jobKey:gmq:jobpool:a,error:has exist"')
    missing = Reply(action=25, code=-1, error=ErrorWord.NO_SUCH_MESSAGE, reason="x")
    produce = session(3).answered(found.request, missing, found.note)
    assert isinstance(produce, Ask)
    assert produce.request.action == Action.PRODUCE
    assert answer(produce, Reply(action=1, code=-1, error=ErrorWord.DUPLICATE_KEY, reason="x")) == exists


def test_what_is_nobodys_is_not_said() -> None:
    assert session().answered(None, Reply(action=0, code=-1, error="too_slow", reason="x")) == b""
    assert session().answered(Request(1), Reply(action=1, code=0)) == b""


@pytest.mark.parametrize(
    ("text", "number"), [("17", 17), ("-0", 0), ("+5", 5), ("", 0), (None, 0), ("1_0", 0), (chr(0x661), 0)]
)
def test_numbers_are_gos(text: str | None, number: int) -> None:
    assert number_in(text) == number


def test_json_as_go_writes_it() -> None:
    assert escaped('"a<b>&\u2028\u2029é"'.encode()) == '"a\\u003cb\\u003e\\u0026\\u2028\\u2029é"'.encode()
    assert compact(b' { "a b" : [ 1 , 2 ] } ') == b'{"a b":[1,2]}'
    assert readable(b'"\\ud83d\\ude00\\udc00\\\\ud800"') == b'"\\ud83d\\ude00\\ufffd\\\\ud800"'
    assert readable(b'"\\uD800\\ud800\\udc00\\udc00"') == b'"\\ufffd\\ud800\\udc00\\ufffd"'
    assert readable(b'"\\\\\\ud800x"') == b'"\\\\\\ufffdx"'
    assert readable(b'"\\\\\\\\ud800"') == b'"\\\\\\\\ud800"'
