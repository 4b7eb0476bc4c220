"""What a machine of the cluster decides: an ordered list of messages, each for the one actor that its type goes to.

A call returns its decisions; the host carries them out in that order and adds nothing. What has to be durable before
it is told is not in the list: the machine says it when it was told that its `WriteEntries` are. A vote is
the one exception, and has a type for it, `election.Save`: nothing behind it is told before it is on disk.
"""

import msgspec

from actors.messages.blocks import FetchBlocks, FillGap
from actors.messages.calls import Answered
from actors.messages.checkpoints import LoadState, ReadEntries, ReadLog, ReadRaw, ReadSnapshot, StagePart
from actors.messages.election import LeaderHeard, QuorumHeard, VoteAsked, VoteGiven
from actors.messages.lifecycle import EndWaits, HandedOver
from actors.messages.log import (
    Apply,
    Deposed,
    Drain,
    LogAdvanced,
    LogCut,
    Promoted,
    Propose,
    StateDropped,
    StateLoaded,
    Undrain,
)
from actors.messages.peers import CutPeer, SendPeers
from storage.entry import StoredEntry


class WriteEntries(msgspec.Struct):
    """Make these entries (and cuts) durable, in order: `LogWriter.write`."""

    entries: list[StoredEntry]
    others_wait: bool = True


OwnerDecision = Apply | Promoted | Deposed | LogAdvanced | LogCut | StateDropped | StateLoaded | Propose
ElectorDecision = LeaderHeard | QuorumHeard | VoteAsked | VoteGiven
CheckpointerDecision = FetchBlocks | FillGap | LoadState | ReadEntries | ReadLog | ReadRaw | ReadSnapshot | StagePart
PeersDecision = SendPeers | CutPeer
RouterDecision = Drain | EndWaits | Undrain
Decision = (
    OwnerDecision
    | ElectorDecision
    | CheckpointerDecision
    | PeersDecision
    | RouterDecision
    | WriteEntries
    | Answered
    | HandedOver
)
Decisions = list[Decision]
