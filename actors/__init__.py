"""The actors of a worker process, in rooms; each actor is one concern.

`gateway` (clients in, which node does a request), `queues` (one shard's state), `cluster` (one log on several nodes)
and `links` (to all other workers) know only `messages` and `runtime`, the cluster also `disk` (who waits for it);
`registrar` keeps MetaQ's clients informed; `node` puts them together. Logic that decides is a
machine without I/O; the actor that hosts it carries out. The walk of one produce through the rooms is in
docs/architecture.md, who tells whom what in the modules of `actors.messages`.
"""

import quorate_compiled

quorate_compiled.choose()
