"""Messages that are moved or buried: their deliveries count on, and dead letters do not expire by themselves."""

from typing import Any

import pytest

from quorate.protocol import TIME_MAX_S, Action
from storage.records import BASE_LEVEL, STREAMS_LEVEL
from tests.actors.queues.shard import Shard


def delivered(shard: Shard, queue: str = "q") -> dict[str, Any]:
    item: dict[str, Any] = shard.ask(Action.CONSUME, queue=queue, count=1)["messages"][0]
    return item


def shown(shard: Shard, msg_id: int) -> dict[str, Any]:
    view: dict[str, Any] = shard.ask(Action.SHOW, msg_id=msg_id)["message"]
    return view


def with_dead_letter(level: int = STREAMS_LEVEL, **fields: Any) -> tuple[Shard, int]:
    shard = Shard()
    shard.broker.ledger.level = level
    shard.ask(Action.CONFIGURE, queue="q", max_deliveries=1, dead_letter="dead")
    msg_id = shard.ask(Action.PRODUCE, queue="q", data=1, retry=9, **fields)["msg_id"]
    delivered(shard)
    shard.pass_time(10)
    assert shown(shard, msg_id)["queue"] == "dead"
    return shard, msg_id


FENCED = [(Action.CONFIRM, {}), (Action.EXTEND, {"retry": 30}), (Action.RELEASE, {}), (Action.BURY, {})]


@pytest.mark.parametrize(("action", "fields"), FENCED)
@pytest.mark.parametrize("way", ["moved", "dead letter"])
def test_who_held_a_message_before_it_was_moved_holds_it_no_more(way: str, action: int, fields: dict[str, Any]) -> None:
    """It was delivery 1 again, and a late confirm of the first one's took it from under the second's hands."""
    shard = Shard()
    shard.ask(Action.CONFIGURE, queue="q", dead_letter="dead")
    msg_id = shard.ask(Action.PRODUCE, queue="q", data=1, retry=9, ttl=100_000)["msg_id"]
    first = delivered(shard)
    if way == "moved":
        shard.pass_time(10)
        assert shard.ask(Action.MOVE, queue="q", to="r", count=1, create=True)["moved"] == 1
        assert shard.ask(Action.MOVE, queue="r", to="q", count=1)["moved"] == 1
    else:
        assert shard.ask(Action.BURY, msg_id=msg_id, delivery=1)["buried"] == 1
        assert shard.ask(Action.MOVE, queue="dead", count=1)["moved"] == 1
    second = delivered(shard)
    assert (first["deliveries"], second["deliveries"], second["deliveries_here"]) == (1, 2, 1)
    late = shard.ask(action, msg_id=msg_id, delivery=1, **fields)
    assert late.get("confirmed") == 0 or late["error"] == "not_in_flight"
    assert shown(shard, msg_id)["state"] == "in_flight"
    assert shard.ask(Action.CONFIRM, msg_id=msg_id, delivery=2)["confirmed"] == 1
    assert shard.replayed().messages.get(msg_id) is None


def test_deliveries_are_allowed_anew_in_each_queue() -> None:
    shard, msg_id = with_dead_letter()
    shard.ask(Action.CONFIGURE, queue="q", max_deliveries=2)
    shard.ask(Action.MOVE, queue="dead", count=1)
    for count in (1, 2):
        item = delivered(shard)
        assert (item["deliveries"], item["deliveries_here"]) == (1 + count, count)
        shard.pass_time(10)
    view = shown(shard, msg_id)
    assert (view["queue"], view["deliveries"], view["deliveries_here"]) == ("dead", 3, 0)
    assert view["dead"]["deliveries"] == 2, "in the queue that it came from"
    state = shard.replayed()
    state.check()
    message = state.messages[msg_id]
    assert (message.deliveries, message.marks) == (0, shard.state.messages[msg_id].marks)


def test_a_dead_letter_does_not_expire_and_is_there_after_it_was_looked_at_by_consume() -> None:
    """Friday's dead letters were gone on Monday: whoever consumed one without a confirm destroyed it."""
    shard, msg_id = with_dead_letter()
    assert shown(shard, msg_id)["expires_at"] == TIME_MAX_S
    shard.pass_time(3 * 86_400)
    delivered(shard, "dead")
    shard.pass_time(3 * 86_400)
    assert shown(shard, msg_id)["state"] == "ready"


@pytest.mark.parametrize(("ttl", "lasts_s"), [(100, 100.0), (100_000, 100_000.0), (TIME_MAX_S, None), (None, 3600.0)])
def test_what_goes_back_lives_as_long_again_as_it_was_to(ttl: float | None, lasts_s: float | None) -> None:
    fields: dict[str, Any] = {} if ttl is None else {"ttl": ttl}
    shard, msg_id = with_dead_letter(**fields)
    for _ in range(2):  # also when it dies again
        shard.pass_time(1000)
        shard.ask(Action.MOVE, queue="dead", count=1)
        wanted = TIME_MAX_S if lasts_s is None else shard.now + lasts_s
        assert shown(shard, msg_id)["expires_at"] == wanted
        delivered(shard)
        shard.pass_time(10)
        assert shown(shard, msg_id)["queue"] == "dead"


def test_what_goes_to_another_queue_lives_as_that_says_and_from_then_on() -> None:
    shard, msg_id = with_dead_letter(ttl=TIME_MAX_S)
    shard.ask(Action.CONFIGURE, queue="other", default_ttl=50, max_deliveries=1, dead_letter="dead")
    shard.ask(Action.MOVE, queue="dead", to="other", count=1)
    assert shown(shard, msg_id)["expires_at"] == shard.now + 50
    delivered(shard, "other")
    shard.pass_time(10)
    shard.ask(Action.MOVE, queue="dead", count=1)
    assert (shown(shard, msg_id)["queue"], shown(shard, msg_id)["expires_at"]) == ("other", shard.now + 50)


@pytest.mark.parametrize(
    ("configured", "expires_in_s"),
    [
        ({"default_ttl": 60}, 60.0),
        ({"default_ttl": 3600}, 3600.0),
        ({"max_size": 5}, None),
        ({"default_ttl": 0}, None),
        (None, None),
    ],
)
def test_a_dead_letter_expires_where_a_configure_of_its_queue_said_so(
    configured: dict[str, Any] | None, expires_in_s: float | None
) -> None:
    shard = Shard()
    if configured is not None:
        shard.ask(Action.CONFIGURE, queue="dead", **configured)
    shard.ask(Action.CONFIGURE, queue="q", dead_letter="dead")
    msg_id = shard.ask(Action.PRODUCE, queue="q", data=1, retry=9)["msg_id"]
    delivered(shard)
    shard.ask(Action.BURY, msg_id=msg_id)
    assert shown(shard, msg_id)["expires_at"] == (TIME_MAX_S if expires_in_s is None else shard.now + expires_in_s)


def test_settings_that_a_version_before_made_count_as_set_where_they_are_not_the_usual_ones() -> None:
    for ttl, expires_in_s in ((3600, None), (120, 120.0)):
        shard = Shard()
        shard.broker.ledger.level = BASE_LEVEL
        shard.ask(Action.CONFIGURE, queue="dead", default_ttl=ttl)
        shard.ask(Action.CONFIGURE, queue="q", dead_letter="dead")
        shard.broker.ledger.level = STREAMS_LEVEL
        msg_id = shard.ask(Action.PRODUCE, queue="q", data=1, retry=9)["msg_id"]
        delivered(shard)
        shard.ask(Action.BURY, msg_id=msg_id)
        assert shown(shard, msg_id)["expires_at"] == (TIME_MAX_S if expires_in_s is None else shard.now + expires_in_s)


def test_below_the_level_all_is_as_it_was() -> None:
    shard, msg_id = with_dead_letter(BASE_LEVEL)
    buried = shown(shard, msg_id)
    assert (buried["expires_at"], buried["deliveries"]) == (buried["dead"]["at"] + 3600, 0)
    shard.ask(Action.MOVE, queue="dead", count=1)
    assert (delivered(shard)["deliveries"], shown(shard, msg_id)["expires_at"]) == (1, shard.now + 3600)
    for record in shard.log:
        assert getattr(record, "totals", None) is None
        assert getattr(record, "lasts", None) is None
        assert getattr(record, "has_own_ttl", None) is None
