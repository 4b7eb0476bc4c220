"""What a node remembers: the change log, the queues' state that it describes, and how both survive a crash.

Life of a record: the queue owner makes it and applies it to `ShardState`; `entry` encodes all that gathered as one
entry; `Journal` puts the entry on disk with one flush, and from then on it is durable; `ShardStore.checkpoint` moves
entries in bulk into LMDB's `log`, which is the change log that recovery, replication and the pipeline read; once
the log holds more than it should, `ShardStore.trim` drops its head and keeps the still living messages in
`backlog`. Recovery is the way back: backlog, then log, then journal, all through `ShardState.apply`.

Nothing here knows an actor, a socket or a clock.
"""
