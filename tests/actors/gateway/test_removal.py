"""A node that was removed sends its clients away, until it is a member again."""

from actors.gateway.removal import Removal
from actors.messages.call import Call
from actors.messages.calls import Answered
from actors.messages.peers import LeaderChanged, NodeRemoved
from quorate.protocol import Action, Request
from tests.actors.cranked import Probe, ref
from tests.actors.gateway.test_router import Asker

HERE = LeaderChanged(1, False, "h", 5)
NOBODY_LEADS = LeaderChanged(0, False)


def test_what_is_about_the_node_alone_is_done_and_the_rest_is_refused() -> None:
    removal, client, asker = Removal(), Asker(), Probe()
    removal.told(NodeRemoved(1))
    calls = [Call(Request(action), client, 0, ref(asker)) for action in (Action.PRODUCE, Action.NODE_STATUS)]
    assert removal.without_refused(calls) == calls[1:]
    [answered] = asker.take(Answered)
    assert [reply.error for _, reply in answered.answers] == ["stopping"]


def test_it_serves_again_when_it_is_told_so_or_somebody_leads_after_nobody_did() -> None:
    removal = Removal()
    removal.told(NodeRemoved(1))
    removal.leader_changed(HERE)
    assert removal.by, "the leader of before is told of again when its link is"
    removal.leader_changed(NOBODY_LEADS)
    assert removal.by
    removal.leader_changed(HERE)
    assert not removal.by
    removal.told(NodeRemoved(1))
    removal.told(NodeRemoved(0))
    assert not removal.by
