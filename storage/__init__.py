"""What a node remembers: the change log, the queues' state that it describes, and how both survive a crash.

Life of a record: the queue owner makes it and applies it to `ShardState`; `entry` encodes all that gathered as one
entry; the journal puts the entry on disk with one write, and from then on it is durable here; `LogTail` knows which
leader made it, until a majority has it. Committed, it goes in bulk into LMDB's `log` (`LogStore.store`), the change
log that recovery, nodes that are behind and the pipeline read; once the log holds more than it should,
`LogStore.trim` drops its head and keeps the still living messages in `backlog`. Recovery is the way back: backlog,
then log, then journal, all through `ShardState.apply`. A vote goes to `VoteFile`, on its own.

Nothing here knows an actor, a socket or a clock.
"""

import quorate_compiled

quorate_compiled.choose()
