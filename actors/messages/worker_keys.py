"""The numbers that Routers know the workers of other shards by: below 0, where nodes have theirs above it."""

from quorate.shards import ID_SHARDS


def worker_key(shard: int, node_id: int = 0) -> int:
    """Give the worker of that shard on node `node_id`, 0: on this node."""
    return -1 - shard - node_id * ID_SHARDS


def node_of(key: int) -> int:
    """Give the node of a worker; 0: this one."""
    return key if key > 0 else (-1 - key) // ID_SHARDS


def shard_of(key: int) -> int:
    """Give the shard of a worker."""
    return (-1 - key) % ID_SHARDS


def shown(key: int) -> str:
    """For people: whom a request was forwarded to."""
    if key > 0 or node_of(key):
        return f"node {node_of(key)}"
    return f"the worker of shard {shard_of(key)}"
