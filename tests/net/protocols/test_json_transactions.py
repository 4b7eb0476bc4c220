"""A transaction's operations are judged as requests that come alone, and bounded together."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from net.protocols.json_session import encode_reply, session
from net.protocols.session import Fault, RequestLimits
from quorate.protocol import BATCH_MAX, Reply, Request, TransactionRequest
from quorate.stream_replies import AppendReply, TransactionReply
from tests.net.peers.test_forwarding import shown
from tests.net.protocols.decoding import decoded

LIMITS = RequestLimits()
ONE = b'{"action":1,"queue":"q","data":"x"}'


def transaction(*operations: bytes, more: bytes = b"") -> bytes:
    return b'{"action":31,"seq":"s","operations":[%s]%s}' % (b",".join(operations), more)


def fault_of(body: bytes) -> Fault:
    found = decoded(body, LIMITS)
    assert isinstance(found, Fault)
    return found


def test_operations_are_the_requests_that_they_would_be_alone() -> None:
    alone = [
        ONE,
        b'{"action":3,"msg_id":1024,"delivery":2}',
        b' {"action" : 27, "topic":"t", "messages":[{"data":{"a":[1,2]}},{"data":"\\u00e9","key":"k"}]} ',
        b'{"action":27,"topic":"t","data":"/wA=","encoding":"base64","headers":{"a":"b"}}',
        b'{"action":30,"topic":"t","group":"g","positions":{"0":5}}',
    ]
    found = decoded(transaction(*alone), LIMITS)
    assert isinstance(found, TransactionRequest)
    assert (found.action, found.seq) == (31, "s")
    assert [shown(one) for one in found.operations] == [shown(decoded(one.strip(), LIMITS)) for one in alone]


@pytest.mark.parametrize(
    ("operations", "reason"),
    [
        (b"[]", "operations: there are 0, and from 1 to 1000 are allowed"),
        (b"{}", "operations: a list of 1 to 1000 requests"),
        (b"null", "operations: a list of 1 to 1000 requests"),
        (b"[" + b",".join([ONE] * (BATCH_MAX + 1)) + b"]", "operations: a list of 1 to 1000 requests"),
        (b"[1]", "operations[0]: an operation is a JSON object"),
        (b"[[]]", "operations[0]: an operation is a JSON object"),
        (b"[%s,{}]" % ONE, "operations[1]: action is missing"),
        (b'[{"action":2,"queue":"q"}]', "operations[0].action: 2 is not one of produce (1), confirm (3), "),
        (b'[{"action":31,"operations":[%s]}]' % ONE, "operations[0]: there is no field operations"),
        (b'[{"action":1,"queue":"q","data":1,"replicate":2}]', "operations[0].replicate: "),
        (b'[{"action":1,"queue":"q","data":1,"data":2}]', "operations[0]: data stands there twice"),
        (b'[{"action":1,"queue":"q","dat":1}]', "operations[0]: there is no field 'dat'"),
        (b'[{"action":1,"queue":"a\\u0000","data":1}]', "operations[0]: queue holds the control character"),
        (b'[{"action":1,"queue":"q","data":1e999}]', "operations[0]: data: "),
        (b'[{"action":1,"queue":"q","data":1,"as_job":true}]', "operations[0]: "),
    ],
)
def test_what_is_wrong_is_said_with_its_place(operations: bytes, reason: str) -> None:
    fault = fault_of(b'{"action":31,"seq":"s","operations":%s}' % operations)
    assert fault.reason.startswith(reason), fault.reason
    assert b'"seq":"s"' in fault.body


def test_operations_that_stand_there_twice_and_other_fields_are_refused() -> None:
    assert "twice" in fault_of(transaction(ONE, more=b',"operations":[]')).reason
    assert fault_of(transaction(ONE, more=b',"opera":[]')).reason == "a field stands there twice, or is none"
    assert fault_of(b'{"action":31,"operations":[{"action":1,"queue":"q","data":nul}]}').error == "bad_json"
    assert fault_of(b'{"action":26,"topic":"t","operations":[]}').reason == "there is no field operations"


def test_the_field_is_searched_for_in_no_payload() -> None:
    found = decoded(b'{"action":1,"queue":"q","data":{"operations":[1]}}', LIMITS)
    assert isinstance(found, Request)
    assert bytes(found.data) == b'{"operations":[1]}'
    assert isinstance(decoded(b'{"action":31}', LIMITS), Request), "its shard says that they are missing"


def test_fields_that_mean_nothing_beside_operations_are_not_looked_at() -> None:
    many = b"[%s]" % b",".join([b"0"] * 5000)
    found = decoded(transaction(ONE, more=b',"messages":%s,"wait":3,"data":[[]]' % many), LIMITS)
    assert isinstance(found, TransactionRequest)
    assert (found.seq, found.wait, found.messages) == ("s", None, None)


def test_what_all_operations_name_is_bounded_before_all_of_it_is_made() -> None:
    many = b'{"action":27,"topic":"t","messages":[%s]}' % b",".join([b'{"data":1}'] * BATCH_MAX)
    assert isinstance(decoded(transaction(many, many), LIMITS), TransactionRequest)
    fault = fault_of(transaction(*[many] * 300))
    assert fault.reason.startswith(f"operations: they name {3 * BATCH_MAX} messages and positions in lists, and ")


@given(st.lists(st.integers(0, 4), max_size=5), st.integers(1, 900_000))
def test_a_large_one_is_judged_in_steps_to_the_same_end(kinds: list[int], size: int) -> None:
    parts = [
        ONE,
        b'{"action":27,"topic":"t","data":"%s"}' % (b"x" * size),
        b'{"action":27,"topic":"t","data":[%s]}' % b",".join([b"12"] * (size // 8 + 1)),
        b'{"action":3,"msg_id":0}',
        b"7",
    ]
    body = transaction(*[parts[kind] for kind in kinds])
    whole = decoded(body, LIMITS)
    there = session(LIMITS)
    found = there.receive(body)
    turns = 0
    while there.has_more:
        found += there.receive(b"")
        turns += 1
    [one] = found
    assert type(one) is type(whole)
    if isinstance(one, Fault):
        assert one == whole
    else:
        assert shown(one) == shown(whole)
    if len(body) > 1 << 20 and isinstance(one, TransactionRequest):
        assert turns > 3


def test_a_reply_has_the_replies() -> None:
    reply = TransactionReply(
        action=31,
        code=0,
        seq=3,
        replies=[Reply(action=3, code=0, confirmed=1), AppendReply(action=27, code=0, topic="t", offset=0)],
    )
    assert msgspec.json.decode(encode_reply(reply)) == {
        "action": 31,
        "code": 0,
        "seq": 3,
        "replies": [
            {"action": 3, "code": 0, "confirmed": 1},
            {"action": 27, "code": 0, "topic": "t", "offset": 0},
        ],
    }
