"""A node: its processes, their configuration, and how a shard's actors are put together."""
