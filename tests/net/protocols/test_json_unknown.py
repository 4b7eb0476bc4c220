"""Fields that there are not: what the original's clients ask is done without them, and they are told."""

import json
from typing import Any, cast

import msgspec
import pytest

from net.ignored_fields import IgnoredFields
from net.node_facts import NodeFacts
from net.protocols.json_session import session
from net.protocols.session import Ask, Fault, RequestLimits
from quorate.protocol import Reply
from tests.net.protocols.test_json_session import LIMITS


@pytest.mark.parametrize("action", [1, 2, 3, 4, 7, 8, *range(9, 15)])
@pytest.mark.parametrize("size", [0, 60 << 10, 300 << 10])
def test_the_originals_actions_are_done_without_fields_that_there_are_not(action: int, size: int) -> None:
    """Found by trying the original's clients: it looks at no field that it does not know."""
    fields: dict[str, Any] = {"action": action, "rety": [1, {"a": 2}], "seq": 7, "as_job": "yes", "ttr": 5}
    if size:
        fields["data"] = "x" * size
    body = msgspec.json.encode(fields)
    facts = NodeFacts()
    for pieces in ([body], [body[:9], body[9:]], [body[n : n + 9000] for n in range(0, len(body), 9000)]):
        a_session = session(LIMITS if not size else RequestLimits(), facts)
        found = [one for piece in pieces for one in a_session.receive(piece)]
        while a_session.has_more:
            found += a_session.receive(b"")
        [one] = found
        if action > 8:
            assert isinstance(one, Fault)
            assert "there is no field" in one.reason
            continue
        assert isinstance(one, Ask)
        assert (one.request.action, one.request.seq, one.request.as_job, one.request.ttr) == (action, 7, None, None)
        said = json.loads(cast("bytes", a_session.answered(one.request, Reply(action=action, code=0), one.note)))
        assert said == {"action": action, "code": 0, "ignored": ["rety", "as_job", "ttr"]}
    assert facts.ignored.count == (3 if action <= 8 else 0)


def test_the_log_names_the_fields_that_are_ignored_once_a_minute(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr("net.ignored_fields.time.monotonic", lambda: now[0])
    ignored = IgnoredFields()
    for number in range(100):
        ignored.note([f"x{number}", "y"])
    now[0] += 60
    ignored.note(["z\n"])
    first, second = [record.getMessage() for record in caplog.records]
    assert first.endswith(": 'x0' (1), 'y' (1)")
    assert "'y' (99)" in second
    assert len(second) < 400, "of very many names some stand there"
    assert "\n" not in second
    assert ignored.count == 101
