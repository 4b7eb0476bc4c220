"""What each actor takes: its mailbox's messages. A test holds these to the actors' own tables of handlers."""

from actors.messages.blocks import (
    BlocksFetched,
    BlocksMissing,
    BlocksRead,
    BlocksStored,
    CloseTail,
    DropBlocks,
    FetchBlocks,
    FillGap,
    GapFilled,
    ReadBlocks,
    StoreBlocks,
)
from actors.messages.calls import (
    Answered,
    Audit,
    ClientGone,
    ClusterAsked,
    Execute,
    LogAsked,
    RefusedForwarded,
    Returned,
    RightsChanged,
    StatusAsked,
    StrangersForwarded,
)
from actors.messages.checkpoints import (
    Checkpoint,
    Checkpointed,
    CheckpointFailed,
    DescribeHead,
    EntriesRead,
    HeadDescribed,
    LoadState,
    LogRead,
    PartStaged,
    RawRead,
    ReadEntries,
    ReadersMoved,
    ReadLog,
    ReadRaw,
    ReadSnapshot,
    SnapshotRead,
    StagePart,
)
from actors.messages.disk import (
    BytesWritten,
    ErrandFailed,
    FileFlushed,
    FlushFile,
    IdentitySaved,
    RunErrand,
    SaveIdentity,
    SegmentReady,
    WriteBytes,
)
from actors.messages.election import (
    ElectionFacts,
    LeaderHeard,
    QuorumHeard,
    Standing,
    VoteAsked,
    VoteGiven,
)
from actors.messages.lifecycle import (
    AccessChanged,
    Attach,
    EndWaits,
    HandedOver,
    HandOver,
    MoveClient,
    Reconfigure,
    ShardFaults,
    Stop,
    Stopped,
)
from actors.messages.log import (
    Append,
    Apply,
    Deposed,
    Drain,
    Drained,
    LogAdvanced,
    LogCut,
    Promoted,
    Propose,
    ReloadNeeded,
    StateDropped,
    StateGone,
    StateLoaded,
    Undrain,
)
from actors.messages.peers import (
    CutPeer,
    Introduce,
    KeyringChanged,
    LeaderChanged,
    MembersChanged,
    NodeRemoved,
    PeerBehind,
    PeerDown,
    PeerFault,
    PeerReceiving,
    PeerRestless,
    PeerSaid,
    PeerUnheard,
    PeerUp,
    Reach,
    RootSettled,
    SendPeers,
)
from actors.messages.registering import (
    GroupsRead,
    ReadGroups,
    ReadTree,
    SessionChanged,
    ShardTopics,
    TellTopics,
    Transact,
    Transacted,
    TreeRead,
)

ToListener = (
    AccessChanged
    | Answered
    | EndWaits
    | MoveClient
    | Reconfigure
    | RefusedForwarded
    | Stop
    | Stopped
    | StrangersForwarded
)
ToAuditor = Audit
ToRouter = (
    AccessChanged
    | Answered
    | ClientGone
    | Drain
    | EndWaits
    | Execute
    | LeaderChanged
    | NodeRemoved
    | PeerBehind
    | PeerDown
    | PeerSaid
    | PeerUnheard
    | PeerUp
    | Reconfigure
    | RightsChanged
    | Returned
    | ShardFaults
    | Stop
    | Undrain
)
ToShardNews = Introduce | LeaderChanged | PeerDown | PeerSaid | PeerUp | RootSettled
ToLinks = CutPeer | Introduce | KeyringChanged | Reach | SendPeers | Stop
ToQueueOwner = (
    Apply
    | BlocksRead
    | BlocksStored
    | CloseTail
    | GapFilled
    | GroupsRead
    | ClientGone
    | Deposed
    | DescribeHead
    | Drain
    | Execute
    | LeaderChanged
    | LogAdvanced
    | LogCut
    | MembersChanged
    | Promoted
    | Propose
    | Reconfigure
    | RightsChanged
    | StateDropped
    | StateLoaded
    | Stop
    | Undrain
    | TellTopics
)
ToReplicator = (
    Append
    | BlocksFetched
    | BlocksMissing
    | BytesWritten
    | CheckpointFailed
    | Checkpointed
    | ClusterAsked
    | Drained
    | EntriesRead
    | ErrandFailed
    | FileFlushed
    | HandOver
    | LogAsked
    | LogRead
    | PartStaged
    | PeerDown
    | PeerFault
    | PeerReceiving
    | PeerRestless
    | PeerSaid
    | PeerUp
    | RawRead
    | ReloadNeeded
    | RootSettled
    | SegmentReady
    | SnapshotRead
    | Standing
    | StateGone
    | StateLoaded
    | StatusAsked
    | Stop
)
ToElector = ElectionFacts | IdentitySaved | LeaderHeard | QuorumHeard | VoteAsked | VoteGiven
ToCheckpointer = (
    Attach
    | Checkpoint
    | DropBlocks
    | FetchBlocks
    | FillGap
    | HeadDescribed
    | LoadState
    | ReadEntries
    | ReadLog
    | ReadRaw
    | ReadSnapshot
    | ReadersMoved
    | StagePart
    | StoreBlocks
)
ToBlockReader = Attach | ReadBlocks
ToDiskLane = FlushFile | RunErrand | SaveIdentity | WriteBytes
ToStopper = HandedOver
ToRegistrar = GroupsRead | LeaderChanged | SessionChanged | ShardTopics | Transacted | TreeRead
ToZooKeeperLane = ReadGroups | ReadTree | Transact
