"""The JSON session: the same requests and faults however the bytes are split, and a clear fault for every bad input."""

import base64
import contextlib
import json
import re
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from net.protocols import json_reading
from net.protocols.json_session import JsonSession, encode_reply, fault_reply
from net.protocols.json_unknown import NAMES_KNOWN
from net.protocols.session import Ask, Fault, RequestLimits
from quorate.protocol import PLAIN, MessageView, Reply, Request, ScanReply
from tests.cost import peak_of
from tests.net.protocols.decoding import decoded

LIMITS = RequestLimits(request_bytes_max=2000, depth_max=8)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
REQUESTS = st.fixed_dictionaries(
    {"action": st.integers(-5, 120)},
    optional={"queue": st.text(max_size=8), "data": VALUES, "delay": st.floats(0, 1e9), "seq": st.integers(0, 99)},
)
PIECES = st.one_of(
    REQUESTS.map(lambda value: json.dumps(value).encode()),
    REQUESTS.map(lambda value: json.dumps(value, indent=1).encode()),
    REQUESTS.map(lambda value: json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")),
    st.sampled_from([b"\n", b" \r\n", b"\t", b"", b"}", b"[1]", b"hello\n", b'"x"', b"\xff\xfe\n", b"\x00"]),
    st.sampled_from([b'{"action":1,"queue":"a","queue":"b"}', b'{"action":tru}', b'{"a', b"{]", b'{"x":"\\"}{"}']),
    st.binary(max_size=12),
)


def received(session: JsonSession, pieces: list[bytes]) -> list[Any]:
    """What the session makes of the pieces, comparable."""
    return [comparable(one) for piece in pieces for one in session.receive(piece)]


def comparable(one: Any) -> Any:
    if isinstance(one, Ask):
        return msgspec.json.encode(one.request), one.note
    return encode_reply(fault_reply(one)) if isinstance(one, Fault) else msgspec.json.encode(one)


@given(st.lists(PIECES, max_size=6), st.data())
def test_the_result_does_not_depend_on_how_the_bytes_are_split(pieces: list[bytes], data: st.DataObject) -> None:
    whole = b"".join(pieces)
    by_byte = received(JsonSession(LIMITS), [whole[i : i + 1] for i in range(len(whole))])
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=5)))
    parts = [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    assert received(JsonSession(LIMITS), [whole]) == by_byte
    assert received(JsonSession(LIMITS), parts) == by_byte


@given(st.lists(REQUESTS, max_size=6), st.sampled_from([b"", b"\n", b"\r\n", b"  "]))
def test_every_object_is_one_event_whatever_stands_between(requests: list[dict[str, Any]], between: bytes) -> None:
    stream = between.join(json.dumps(request).encode() for request in requests)
    assert len(JsonSession(RequestLimits()).receive(stream)) == len(requests)


@given(st.binary(max_size=200))
def test_no_input_makes_the_session_raise(garbage: bytes) -> None:
    for found in JsonSession(LIMITS).receive(garbage):
        if isinstance(found, Fault):
            encode_reply(fault_reply(found))


def test_data_comes_through_byte_for_byte() -> None:
    body = b'{"action":1,"queue":"q","data":{"a": [1, "\\u00e9", 1.50], "b":  null}}'
    request = decoded(body, LIMITS)
    assert isinstance(request, Request)
    assert bytes(request.data) == b'{"a": [1, "\\u00e9", 1.50], "b":  null}'


@pytest.mark.parametrize(
    ("body", "error", "says"),
    [
        (b"hello", "bad_json", "begins with 'h'"),
        (b"[1,2]", "bad_json", "begins with '['"),
        (b'"text"', "bad_json", "JSON object"),
        (b"\xff", "bad_json", "byte 0xff"),
        (b'{"action":1,}', "bad_json", "byte 12"),
        (b'{"action" 1}', "bad_json", "byte"),
        (b'{"action":1,"delay":NaN}', "bad_json", "byte 20"),
        (b'{"action":1,"data":"\\ud800"}', "bad_json", "surrogate"),
        (b'{"action":1,"queue":"\xff"}', "bad_json", "UTF-8"),
        (b'{"action":1,"queue":"q","data":"\xff"}', "bad_json", "UTF-8"),
        (b'{"action":1,"data":' + b"[" * 30 + b"]" * 30 + b"}", "bad_json", "deeper than 8"),
        (b'{"queue":"q"}', "field_error", "action is missing"),
        (b'{"action":"1"}', "field_error", "action: expected int, got str"),
        (b'{"action":1.5}', "field_error", "action"),
        (b'{"action":true}', "field_error", "action"),
        (b'{"action":9,"qeue":"q"}', "field_error", "there is no field qeue"),
        (b'{"action":1,"qeue":"q","qeue":"q"}', "field_error", "qeue stands there twice"),
        (b'{"action":1,"queue":"q","x":1,"queue":"q"}', "field_error", "queue stands there twice"),
        (b'{"action":1,"messages":[{"data":1,"rety":1}]}', "field_error", "there is no field rety"),
        (b'{"action":1,"x":1,"queue":7}', "field_error", "queue: expected str"),
        (b'{"action":1,' + b",".join(b'"x%d":1' % n for n in range(17)) + b"}", "field_error", "there is no field x0"),
        (b'{"action":1,"' + b"x" * 65 + b'":1}', "field_error", "there is no field xxx"),
        (b'{"action":1,"a\\u0000":1}', "field_error", "there is no field a"),
        (b'{"action":1,"a\\u003a":1}', "field_error", "there is no field a:"),
        (b'{"action":1,"x":' + b"[" * 30 + b"]" * 30 + b"}", "bad_json", "deeper than 8"),
        (b'{"action":1,"queue":""}', "field_error", "queue: expected str of length >= 1"),
        (b'{"action":1,"queue":"' + b"q" * 256 + b'"}', "field_error", "queue"),
        (b'{"action":1,"queue":"' + "ü".encode() * 200 + b'"}', "field_error", "255 bytes"),
        (b'{"action":1,"queue":"a\\nb"}', "field_error", "control character"),
        (b'{"action":1,"queue":"q","key":"a\\u0000"}', "field_error", "key holds the control character"),
        (b'{"action":2,"queues":["a","b\\u007f"]}', "field_error", "queues[1] holds"),
        (b'{"action":5,"queue":"q","dead_letter":"a\\u0000"}', "field_error", "dead_letter holds"),
        (b'{"action":7,"pattern":"a\\u0000"}', "field_error", "pattern holds"),
        (b'{"action":14,"reader":"a\\u0000"}', "field_error", "reader holds"),
        (b'{"action":2,"queue":"q","consumer":"a\\u0000"}', "field_error", "consumer holds"),
        (b'{"action":1,"messages":[{"data":1},{"data":1,"key":"a\\u0000"}]}', "field_error", "messages[1].key holds"),
        (b'{"action":1,"messages":[{"data":"x"},{"data":1e999}]}', "field_error", "messages[1].data: "),
        (b'{"action":1,"messages":[{"data":"x","key":"a\\u0007"}]}', "field_error", "messages[0].key holds"),
        (b'{"action":1,"data":"x","messages":[{"data":1e999}]}', "field_error", "messages[0].data: "),
        (b'{"action":1,"messages":[{"data":[[[[[[1]]]]]]}]}', "bad_json", "deeper than 8"),
        (b'{"action":1,"data":[[[[[[[[1]]]]]]]]}', "bad_json", "deeper than 8"),
        (b'{"action":1,"queue":"q","delay":-1}', "time_error", "delay: expected float >= 0"),
        (b'{"action":1,"queue":"q","ttl":1e300}', "time_error", "ttl"),
        (b'{"action":1,"queue":"q","retry":-5}', "field_error", "retry"),
        (b'{"action":1,"queue":"q","priority":99999999999}', "field_error", "priority"),
        (b'{"action":3,"msg_id":-1}', "field_error", "msg_id"),
        (b'{"action":3,"msg_id":9999999999999999999999}', "field_error", "msg_id"),
        (b'{"action":2,"count":0}', "field_error", "count"),
        (b'{"action":2,"count":1001}', "field_error", "count"),
        (b'{"action":1,"queue":"a","queue":"b"}', "field_error", "queue stands there twice"),
        (b'{"action":1,"data":"a:b","data":"c"}', "field_error", "data stands there twice"),
        (b'{"action":1,"queue" : "a","queue":"b"}', "field_error", "queue stands there twice"),
        (b'{"action":1,"messages":[{"data":1,"data":2}]}', "field_error", "data stands there twice"),
        (b'{"action":1,"key":null,"key":null}', "field_error", "key stands there twice"),
        (b'{"action":1,"queue":"a\\u003ab","retry":1,"retry":2}', "field_error", "retry stands there twice"),
        (b'{"action":1,"queue":"' + b"x" * 3000 + b'"}', "too_large", "2000"),
    ],
)
def test_bad_input_gets_a_fault_that_says_what_and_where(body: bytes, error: str, says: str) -> None:
    for pieces in ([body], [body[i : i + 1] for i in range(len(body))]):
        session = JsonSession(LIMITS)
        [fault] = [found for piece in pieces for found in session.receive(piece)]
        assert isinstance(fault, Fault)
        assert fault.error == error
        assert says in fault.reason


@pytest.mark.parametrize(
    "body",
    [
        b'{"action":1,"queue":"user:1:mail","data":"http://x/?a=b\\":c","seq":1}',
        b'{ "action" : 1 , "queue" : "q" , "data" : {"a":{"b":":"}} }',
        b'{"action":1,"queue":"q","data":{"x":1,"x":2}}',
        b'{"action":1,"queue":"q","messages":[{"data":{"a":1}},{"data":"\\":","key":"k:1"}]}',
        b'{"action":1,"queue":"q","key":null,"data":1}',
        b'{"action":5,"queue":"q","dead_letter":null}',
        b'{"action":1,"queue":"q","messages":[{"data":[[[[[1]]]]]}]}',
        b'{"action":1,"queue":"q","data":[[[[[[[1]]]]]]]}',
        b'{"action":5,"queue":"q","dead_letter":"d"}',
    ],
)
def test_unusual_but_right_requests_are_accepted(body: bytes) -> None:
    assert isinstance(decoded(body, LIMITS), Request)


NAMES = st.text(st.sampled_from('ab:"\\u03{}, '), max_size=6)
FIELDS = st.one_of(
    st.tuples(st.sampled_from(["queue", "key", "seq", "consumer"]), NAMES.map(json.dumps)),
    st.tuples(st.sampled_from(["data"]), VALUES.map(json.dumps) | NAMES.map(lambda text: json.dumps({text: text}))),
    st.tuples(st.sampled_from(["retry", "ttl", "key"]), st.sampled_from(["null", "5", "0.0"])),
)


def escaped(value: str, old: str, new: str) -> str:
    """The same value, written in another way where it can be."""
    other = value.replace(old, new)
    with contextlib.suppress(json.JSONDecodeError):
        if json.loads(other) == json.loads(value):
            return other
    return value


@example([("queue", '"\\\\"')], [], ":", ('\\"', "\\u0022"))
@given(
    st.lists(FIELDS, max_size=4),
    st.lists(st.lists(FIELDS, max_size=3), max_size=3),
    st.sampled_from([":", " : ", ": "]),
    st.sampled_from([("a", "a"), (":", "\\u003a"), (":", "\\u003A"), ('\\"', "\\u0022")]),
)
def test_no_field_stands_twice_in_what_is_taken(
    fields: list[tuple[str, str]], items: list[list[tuple[str, str]]], colon: str, escape: tuple[str, str]
) -> None:
    def written(pairs: list[tuple[str, str]]) -> list[str]:
        return [f'"{name}"{colon}{escaped(value, *escape)}' for name, value in pairs]

    rows = ",".join("{" + ",".join(written(item)) + "}" for item in items)
    parts = [f'"action"{colon}1', *written(fields), *([f'"messages"{colon}[{rows}]'] if items else [])]
    body = ("{" + ",".join(parts) + "}").encode()
    names = [[name for name, _ in fields], *([name for name, _ in item] for item in items)]
    has_twice = any(len(set(one)) < len(one) for one in names)
    found = decoded(body, LIMITS)
    if isinstance(found, Request):
        assert not has_twice
    elif isinstance(found, Fault):
        assert has_twice or "twice" not in found.reason
    else:
        assert not has_twice
        assert set(found.note) == {name for name, _ in fields} - NAMES_KNOWN


ITEMS = st.sampled_from(
    [
        '{"data":"x"}',
        '{"data": "x"}',
        "{}",
        '{"data":"x","data":"y"}',
        '{"data":"{\\"data\\":\\""}',
        '{"data":{"data":"x"}}',
        '{"data":{"x{\\"data":"x"}}',
        '{"data":"a:b"}',
        '{"data":"\\u003a"}',
        '{"d\\u0061ta":"x"}',
        '{"data":"x","key":"k"}',
        '{"key":"a\\u0001"}',
        '{"data":"x","encoding":"utf8"}',
        '{"data":1e999}',
        '{"data":"\u00e9"}',
        '{"data":null}',
    ]
)
BESIDE = st.sampled_from(
    ['"queue":"q"', '"queue":"q{\\"data\\":\\""', '"seq":"a:b"', '"retry":1', '"count":2', '"msg_ids":[1]', '"wait":1']
)


@given(st.lists(ITEMS, min_size=1, max_size=4), st.lists(BESIDE, max_size=3, unique=True), st.booleans())
def test_a_batch_that_looks_usual_is_judged_as_any_other(items: list[str], beside: list[str], is_last: bool) -> None:
    """The short way and the long one say the same of it."""
    messages = f'"messages":[{",".join(items)}]'
    fields = ['"action":1', *beside, messages] if is_last else ['"action":1', messages, *beside]
    body = ("{" + ",".join(fields) + "}").encode()
    request = msgspec.json.Decoder(Request).decode(body)
    usual = json_reading._fault_in_usual(request, body, LIMITS.depth_max)
    if usual is json_reading._PLAIN:
        usual = None
    if usual is not json_reading._NEEDS_FULL_CHECK:
        assert usual is None
        assert json_reading._fault_in_more(request, body, LIMITS.depth_max) is None
        assert json_reading._plain_fault_in(request, body) is None
        assert request.encoding is None
        assert all(item.encoding is None for item in request.messages or ())


@pytest.mark.parametrize("colon", [":", ": "])
def test_batches_of_strings_are_usual(colon: str) -> None:
    for rest in ('"queue":"q","retry":60,"messages":[{"data"@"x"},{"data"@"y"}]', '"msg_ids":[1,2]', '"count":100'):
        body = ('{"action":1,' + rest.replace("@", colon) + "}").encode()
        request = msgspec.json.Decoder(Request).decode(body)
        assert json_reading._fault_in_usual(request, body, LIMITS.depth_max) in (None, json_reading._PLAIN)


def test_garbage_is_answered_once_and_passed_over_to_the_next_line_or_object() -> None:
    session = JsonSession(LIMITS)
    found = session.receive(b'17\n"text" {"action":1}\n{"action":2}')
    assert [type(one) for one in found] == [Fault, Fault, Request, Request]


@pytest.mark.parametrize(
    "stream",
    [
        b'POST / HTTP/1.1\r\n\r\n{"action":13,"queue":"q"}',
        b'[{"action":13,"queue":"q"}]',
        b'\x16\x03\x01\x02\n{"action":13,"queue":"q"}',
        b"hello",
    ],
)
def test_what_a_browser_was_made_to_send_is_not_obeyed(stream: bytes) -> None:
    [fault] = JsonSession(LIMITS).receive(stream)
    assert isinstance(fault, Fault)
    assert fault.is_fatal


def test_a_large_nested_message_is_judged_in_no_time_and_not_copied_to_death() -> None:
    data = b"[" + b"{}," * 300_000 + b"{}]"
    body = b'{"action":1,"queue":"a:b","key":null,"data":' + data + b"}"
    request = decoded(body, RequestLimits())
    assert isinstance(request, Request)
    deep = b"[" * 990 + b"]" * 990
    fault = decoded(b'{"action":1,"queue":"q","key":null,"data":' + deep + b"}", RequestLimits())
    assert isinstance(fault, Fault)
    assert "deeper" in fault.reason


def test_a_fault_reply_names_the_request_where_it_can() -> None:
    fault = decoded(b'{"action":1,"queue":"q","seq":"s1","delay":-1}', LIMITS)
    assert isinstance(fault, Fault)
    reply = fault_reply(fault)
    assert (reply.action, reply.queue, reply.seq) == (1, "q", "s1")


def test_a_reply_is_one_line_without_what_is_not_set() -> None:
    assert (
        encode_reply(Reply(action=1, code=0, queue="q", msg_id=5)) == b'{"action":1,"code":0,"queue":"q","msg_id":5}\n'
    )


def one_request(body: bytes) -> Request:
    [found] = JsonSession(RequestLimits()).receive(body)
    assert isinstance(found, Request), found
    return found


@pytest.mark.parametrize(
    ("encoding", "text", "data"),
    [("utf8", "h\u00e9", "h\u00e9".encode()), ("base64", "AAH/", b"\x00\x01\xff"), ("utf8", "", b"")],
)
def test_plain_bytes_come_as_text_and_go_as_text(encoding: str, text: str, data: bytes) -> None:
    request = one_request(
        json.dumps({"action": 1, "queue": "q", "data": text, "encoding": encoding}, ensure_ascii=False).encode()
    )
    assert (bytes(request.data), request.encoding) == (data, PLAIN)
    many = one_request(
        json.dumps({"action": 1, "queue": "q", "encoding": encoding, "messages": [{"data": text}]}).encode()
    )
    assert many.messages is not None
    assert (bytes(many.messages[0].data), many.messages[0].encoding) == (data, PLAIN)
    reply = Reply(action=2, code=0, msg_id=1, data=msgspec.Raw(data), encoding=PLAIN)
    said = json.loads(encode_reply(reply))
    assert (said["data"], said["encoding"]) == (text, encoding)
    seen = {"msg_id": 1, "queue": "q", "state": "ready", "priority": 0, "deliveries": 0, "trans_id": 1, "retry": 0.0}
    times = {"produced_at": 0.0, "due_at": 0.0, "expires_at": 0.0}
    view = msgspec.convert({**seen, **times, "data": msgspec.Raw(b"0")}, MessageView)
    view = msgspec.structs.replace(view, data=msgspec.Raw(data), encoding=PLAIN)
    scanned = json.loads(encode_reply(ScanReply(action=23, code=0, shards=1, now=0.0, messages=[view])))
    assert (scanned["messages"][0]["data"], scanned["messages"][0]["encoding"]) == (text, encoding)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ('"data":1e999', "out of range"),
        ('"data":[1,' + "9" * 5000 + "]", "out of range"),
        ('"data":1,"encoding":"utf8"', "must be a string"),
        ('"data":"*","encoding":"base64"', "not base64"),
        ('"data":"x","encoding":"latin1"', "is none of"),
        ('"messages":[{"data":1e999}]', r"messages\[0\].data"),
        ('"messages":[{"data":{},"encoding":"base64"}]', r"messages\[0\].data"),
    ],
)
def test_what_no_reply_could_carry_is_refused_when_it_is_produced(fields: str, says: str) -> None:
    [fault] = JsonSession(RequestLimits()).receive(b'{"action":1,"queue":"q",' + fields.encode() + b"}")
    assert isinstance(fault, Fault)
    assert re.search(says, fault.reason), fault.reason


def test_large_numbers_that_can_be_read_are_taken() -> None:
    for data in (b"123456789012345678901234567890", b"1e300", b"-0.0e-9999", b'{"a":[1e-400]}'):
        assert bytes(one_request(b'{"action":1,"queue":"q","data":' + data + b"}").data) == data


def test_plain_data_that_look_like_another_message_are_no_riddle() -> None:
    """Once the decoded bytes were looked for in the request that they had come in (found by review)."""
    inner = '{"data":"' + "a" * 4200
    decoded = {"data": base64.b64encode(inner.encode()).decode(), "encoding": "base64"}
    body = {"action": 1, "queue": "q", "messages": [decoded, {"data": "a" * 4200}]}
    request = one_request(json.dumps(body, separators=(",", ":")).encode())
    assert request.messages is not None
    assert [bytes(item.data) for item in request.messages] == [inner.encode(), b'"' + b"a" * 4200 + b'"']


@pytest.mark.parametrize("field", ['"action":1180591620717411303424', '"action":1,"seq":1180591620717411303424'])
def test_numbers_that_nodes_could_not_pass_on_are_refused(field: str) -> None:
    [fault] = JsonSession(RequestLimits()).receive(b'{"queue":"q","data":1,' + field.encode() + b"}")
    assert isinstance(fault, Fault)
    assert fault.error == "field_error"


def found_in(*pieces: bytes) -> list[Any]:
    """What a session finds in a stream, in as many turns as it takes."""
    session = JsonSession(RequestLimits())
    found = []
    for piece in pieces:
        found += session.receive(piece)
        while session.has_more:
            found += session.receive(b"")
    return found


LARGE = b" " * json_reading.LARGE_BODY_BYTES
"""Makes a request a large one, and changes nothing in it."""


@pytest.mark.parametrize("name", ["messages", "msg_ids", "queues"])
@pytest.mark.parametrize("before", [b"", b"[],", b"null,"])
def test_a_list_that_is_too_long_is_refused_before_anything_of_it_is_made(name: str, before: bytes) -> None:
    """4 MiB of `{},` would make 1.3 million objects, in 0.2 s of everybody's time; also where another list follows."""
    field = b'"%s":' % name.encode()
    body = b'{"action":1,' + field + b"[" + b"{}," * 100_000 + b"{}]" + (before and b"," + field + before[:-1]) + b"}"
    assert len(body) > json_reading.LARGE_BODY_BYTES
    found = decoded(body, RequestLimits(request_bytes_max=1 << 20))
    assert isinstance(found, Fault)
    assert found.error == "field_error"
    assert re.search("twice" if before else "at most 1000", found.reason)


@pytest.mark.parametrize(
    "body",
    [
        b'{"action":1,"queue":"q","data":"a:b"}',
        b'{"action":1,"queue":"q","d\\u0061ta":{"a":{"b":[1,2]}},"delay":null}',
        b'{"action":1,"queue":"q","messages":[{"data":{"a":1}},{"data":":","key":"k"}]}',
        b'{"action":3,"msg_ids":[1,2,3]}',
        b'{"action":2,"queues":["a","b"],"messages":null}',
        b'{"action":1,"queue":"q","queue":"q"}',
        b'{"action":1,"messages":{"a":1}}',
        b'{"action":1,"queue":"q","messages":[{"data":1,"data":2}]}',
        b'{"action":1,"queue":"q","data":"\\xff"}',
        b'{"action":1,"queue":"q","data":[1,]}',
    ],
)
def test_a_large_request_is_judged_as_a_small_one(body: bytes) -> None:
    limits = RequestLimits(request_bytes_max=1 << 20)
    small, large = decoded(body, limits), decoded(body[:-1] + LARGE + b"}", limits)
    if isinstance(small, Fault):
        assert isinstance(large, Fault)
        assert (large.error, large.is_fatal) == (small.error, small.is_fatal)
    else:
        assert msgspec.json.encode(large) == msgspec.json.encode(small)


@pytest.mark.parametrize("number", [b"1e400", b"-1E+999", b"9" * 5000, b"1.5e-1000000000000"])
@pytest.mark.parametrize("data", [b"[%s]", b'{"a":[1,%s],"b":"x"}'])
def test_numbers_beyond_every_reader_are_found_wherever_they_stand(number: bytes, data: bytes) -> None:
    try:
        msgspec.json.decode(data % number)
    except (msgspec.DecodeError, ValueError):
        found = decoded(b'{"action":1,"queue":"q","data":%s}' % (data % number), RequestLimits())
        assert isinstance(found, Fault)
        assert found.error == "field_error"


def test_where_a_byte_is_wrong_is_told_from_the_objects_beginning() -> None:
    """However the stream was cut: found by 200,000 mutated streams."""
    stream = b'\n {"action":1,"queue":"q","data":"a\xb3","key":null}'
    whole, pieces = JsonSession(RequestLimits()), JsonSession(RequestLimits())
    [fault] = whole.receive(stream)
    found = [one for at in range(len(stream)) for one in pieces.receive(stream[at : at + 1])]
    assert isinstance(fault, Fault)
    assert found == [fault]
    assert fault.reason.endswith(f"at byte {stream.index(0xB3) - 2}")


def test_the_reply_to_a_large_request_that_is_wrong_names_it() -> None:
    body = b'{"action":1,"queue":"q","seq":7,"queue":"q","data":[' + b"0," * 20_000 + b"0]}"
    found = decoded(body, RequestLimits(request_bytes_max=1 << 20))
    assert isinstance(found, Fault)
    assert len(found.body) < 100
    reply = fault_reply(found)
    assert (reply.action, reply.queue, reply.seq) == (1, "q", 7)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ('"headers":{"a":1}', "headers"),
        ('"headers":["a"]', "headers"),
        ('"headers":{"":"x"}', "headers has an empty name"),
        ('"headers":{"a":"' + "x" * 8192 + '"}', "headers has 8193 bytes"),
        ('"headers":{"a":"' + "é" * 4096 + '"}', "headers has 8193 bytes"),
        ('"headers":{' + ",".join(f'"{n}":""' for n in range(65)) + "}", "headers"),
        ('"headers":{"a":"1","b":"2","a":"3"}', "'a' stands there twice"),
        ('"headers":{"a:":"1:","\\u0061:":"3"}', "stands there twice"),
        ('"expire":"keep"', "expire"),
        ('"delivery":-1', "delivery"),
        ('"full":1', "full"),
    ],
)
@pytest.mark.parametrize("is_in_item", [False, True])
def test_what_workers_say_is_looked_at(fields: str, says: str, is_in_item: bool) -> None:
    body = '{"action":1,"queue":"q","data":"x",' + fields + "}"
    if is_in_item:
        if "headers" not in fields:
            return
        body = '{"action":1,"queue":"q","messages":[{"data":"y"},{"data":"x",' + fields + "}]}"
    fault = decoded(body.encode(), RequestLimits())
    assert isinstance(fault, Fault)
    assert fault.error == "field_error"
    assert says in fault.reason


def test_headers_come_as_they_are_and_other_actions_drop_them() -> None:
    headers = {"a": "1:2", "traceparent": "00-x", "é": "\n"}
    text = json.dumps({"action": 1, "queue": "q", "data": "x", "headers": headers}).encode()
    request = decoded(text, RequestLimits())
    assert isinstance(request, Request)
    assert request.headers == headers
    request = decoded(text.replace(b'"action": 1', b'"action": 2'), RequestLimits())
    assert isinstance(request, Request)
    assert request.headers is None


@pytest.mark.parametrize("is_in_item", [False, True])
def test_very_many_headers_are_refused_before_they_are_made(is_in_item: bool) -> None:
    many = b'"headers":{%s}' % b",".join([b'"a":""'] * 500_000)
    body = b'{"action":1,"queue":"q","messages":[{"data":1,%s}]}' % many if is_in_item else b'{"action":1,%s}' % many
    fault = decoded(body, RequestLimits())
    assert isinstance(fault, Fault)
    assert "headers: too many" in fault.reason


DEEP = b"[" * 40 + b"]" * 40


@pytest.mark.parametrize(
    "body",
    [
        b'{"action":1,"queue":"q","messages":[{"encoding":"json","data":%s}]}' % DEEP,
        b'{"action":1,"queue":"q","messages":[{"encoding":"utf8","data":%s}]}' % DEEP,
        b'{"action":1,"queue":"q","data":["\xff",%s]}' % DEEP,
        b'{"action":1,"data":%s,"data":1,"queue":"a\\u0001"}' % DEEP,
        b'{"action":1,"queue":"q","messages":[{"key":"\\u0001","data":%s}]}' % DEEP,
        b'{"action":1,"queue":"q","messages":[{"data":[1e400,%s]}]}' % DEEP,
        b'{"action":1,"queue":"q","headers":{"":""},"messages":[{"data":%s,"data":1}]}' % DEEP,
    ],
)
def test_what_is_too_deep_is_so_however_it_comes_and_whatever_else_is_wrong(body: bytes) -> None:
    """The framer says it before it has seen the rest; an item's data that came in one piece were taken at any depth."""
    for pieces in ([body], [body[:5], body[5:]], [body + LARGE]):
        [fault] = [
            one for session in [JsonSession(RequestLimits())] for piece in pieces for one in session.receive(piece)
        ]
        assert isinstance(fault, Fault)
        assert fault.reason == "nested deeper than 32 levels"


@pytest.mark.parametrize("beside", [b"", b',"wait":3600', b',"key":null', b',"key":null' + LARGE, b',"queues":["b"]'])
def test_data_that_no_other_action_reads_are_dropped_however_they_come(beside: bytes) -> None:
    """A consumer that waits had held a body of 4 MiB."""
    body = b'{"action":2,"queue":"q","data":"a","encoding":"json"%s}' % beside
    for one in (body, body.replace(b',"encoding":"json"', b""), body.replace(b'"a"', b"[1,[2]]")):
        [request] = found_in(one)
        assert isinstance(request, Request), request.reason
        assert bytes(request.data) == b""


def test_very_many_requests_in_one_read_are_looked_at_in_turns() -> None:
    """256 KiB of `{}` held everybody up for 0.4 s."""
    session = JsonSession(RequestLimits())
    found = session.receive(b"{}" * 1000 + b'{"action":7}')
    assert (len(found), session.state, session.partial_bytes) == (200, None, 800 * 2 + 12)
    rest: list[list[Any]] = []
    while session.has_more:
        rest.append(session.receive(b"" if len(rest) else b'{"action":8}'))
    assert [len(one) for one in rest] == [200, 200, 200, 200, 2]
    assert [one.action for one in rest[-1] if isinstance(one, Request)] == [7, 8]
    assert (session.partial_bytes, session.state) == (0, b"")


@pytest.mark.parametrize("name", [b"seq", b"action", b"queue"])
@pytest.mark.parametrize("end", [b"]}", b",]}"])
def test_a_reply_to_what_is_wrong_makes_nothing_of_it(name: bytes, end: bytes) -> None:
    """A list of a million for `seq` was made, to see that it is none: half a second."""
    body = b'{"action":1,"%s":[%s1%s' % (name, b'{"":[]},' * 100_000, end)
    [fault] = found_in(body)
    assert isinstance(fault, Fault)
    assert peak_of(lambda: fault_reply(fault)) < 100_000


def test_a_name_of_any_length_is_not_said_again() -> None:
    [fault] = JsonSession(RequestLimits()).receive(b'{"action":1,"%s":1}' % (b"a" * 100_000))
    assert isinstance(fault, Fault)
    assert fault.reason.startswith("there is no field aaa")
    assert len(encode_reply(fault_reply(fault))) < 1000


def test_lists_of_every_kind_are_counted_before_they_are_made() -> None:
    body = b'{"action":3,"msg_id":1,"delivery":[%s1]}' % (b"300," * 1_000_000)
    [fault] = found_in(body)
    assert isinstance(fault, Fault)
    assert "at most 1000" in fault.reason
    assert peak_of(lambda: found_in(body)) < 3 * len(body)
