"""What an owner may do, stage by stage; and that no other way leads from one to the next."""

import pytest

from actors.shard.owner_stage import OwnerStage, Stage


def test_requests_are_done_only_when_the_own_first_record_is_committed() -> None:
    stage = OwnerStage()
    stage.promoted(5, lead_trans_id=10)
    assert (stage.leads, stage.serves) == (True, False)
    assert not stage.committed(9)
    assert stage.committed(10)
    assert stage.caught_up()
    assert (stage.leads, stage.serves) == (True, True)
    assert not stage.committed(11), "it serves already"


def test_a_shard_that_is_just_being_founded_serves_when_it_is_committed_who_its_members_are() -> None:
    stage = OwnerStage()
    stage.named(None)
    stage.promoted(5, lead_trans_id=1)
    assert not stage.committed(1)
    stage.named(2)
    assert not stage.committed(1)
    assert stage.committed(2)
    assert stage.caught_up()
    stage.named(9)
    assert stage.serves, "they may change later"


def test_a_drain_is_of_the_own_vote_told_once_and_taken_back() -> None:
    stage = OwnerStage()
    stage.promoted(5, 1)
    assert not stage.drain(5), "nothing is served yet"
    stage.committed(1)
    stage.caught_up()
    assert not stage.drain(4)
    assert stage.drain(5)
    assert (stage.serves, stage.lets_time_pass, stage.is_urgent) == (True, False, True)
    assert stage.drained()
    assert not stage.drained()
    assert stage.undrain(), "time has stood still"
    assert stage.stage is Stage.CATCHING_UP
    assert stage.caught_up()
    assert not stage.undrain(), "asked twice"
    assert stage.serves


def test_who_is_deposed_with_more_than_the_log_says_begins_anew() -> None:
    stage = OwnerStage()
    stage.promoted(5, 1)
    stage.deposed()
    stage.dropped()
    stage.loaded()
    assert (stage.stage, stage.leads) == (Stage.FOLLOWING, False)


@pytest.mark.parametrize("step", ["loaded", "undrain"])
def test_a_step_that_can_not_be_is_a_bug(step: str) -> None:
    stage = OwnerStage()
    if step == "undrain":
        stage.undrain()
        assert stage.stage is Stage.FOLLOWING, "a follower was never about to hand over"
        return
    with pytest.raises(AssertionError, match="does not become"):
        stage.loaded()


def test_stopping_is_urgent_in_any_stage() -> None:
    stage = OwnerStage()
    stage.is_stopping = True
    assert stage.is_urgent


def test_who_has_caught_up_with_the_time_serves() -> None:
    stage = OwnerStage()
    assert not stage.caught_up(), "a follower has nothing to catch up with"
    stage.promoted(5, 1)
    assert not stage.caught_up(), "what an earlier leader has committed is not known"
    assert stage.committed(1)
    assert (stage.leads, stage.serves, stage.lets_time_pass) == (True, False, True)
    assert stage.caught_up()
    assert stage.serves
    assert not stage.caught_up(), "it serves already"


def test_who_hands_over_before_it_has_caught_up_leaves_that_to_the_next() -> None:
    stage = OwnerStage()
    stage.promoted(5, 1)
    assert stage.committed(1)
    assert stage.drain(5)
    assert not stage.caught_up()
    assert (stage.stage, stage.lets_time_pass) == (Stage.DRAINING, False)
