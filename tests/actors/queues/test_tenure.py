"""What an owner may do, stage by stage; and that no other way leads from one to the next."""

import pytest

from actors.queues.tenure import Stage, Tenure


def test_requests_are_done_only_when_the_own_first_record_is_committed() -> None:
    tenure = Tenure()
    tenure.promoted(5, lead_trans_id=10)
    assert (tenure.leads, tenure.serves) == (True, False)
    assert not tenure.committed(9)
    assert tenure.committed(10)
    assert (tenure.leads, tenure.serves) == (True, True)
    assert not tenure.committed(11), "it serves already"


def test_a_shard_that_is_just_being_founded_serves_when_it_is_committed_who_its_members_are() -> None:
    tenure = Tenure()
    tenure.named(None)
    tenure.promoted(5, lead_trans_id=1)
    assert not tenure.committed(1)
    tenure.named(2)
    assert not tenure.committed(1)
    assert tenure.committed(2)
    tenure.named(9)
    assert tenure.serves, "they may change later"


def test_a_drain_is_of_the_own_vote_told_once_and_taken_back() -> None:
    tenure = Tenure()
    tenure.promoted(5, 1)
    assert not tenure.drain(5), "nothing is served yet"
    tenure.committed(1)
    assert not tenure.drain(4)
    assert tenure.drain(5)
    assert (tenure.serves, tenure.lets_time_pass, tenure.is_urgent) == (True, False, True)
    assert tenure.drained()
    assert not tenure.drained()
    tenure.undrain()
    assert tenure.stage is Stage.SERVING
    tenure.undrain()
    assert tenure.stage is Stage.SERVING, "asked twice"


def test_who_is_deposed_with_more_than_the_log_says_begins_anew() -> None:
    tenure = Tenure()
    tenure.promoted(5, 1)
    tenure.deposed()
    tenure.dropped()
    tenure.loaded()
    assert (tenure.stage, tenure.leads) == (Stage.FOLLOWING, False)


@pytest.mark.parametrize("step", ["loaded", "undrain"])
def test_a_step_that_can_not_be_is_a_bug(step: str) -> None:
    tenure = Tenure()
    if step == "undrain":
        tenure.undrain()
        assert tenure.stage is Stage.FOLLOWING, "a follower was never about to hand over"
        return
    with pytest.raises(AssertionError, match="does not become"):
        tenure.loaded()


def test_stopping_is_urgent_in_any_stage() -> None:
    tenure = Tenure()
    tenure.is_stopping = True
    assert tenure.is_urgent
