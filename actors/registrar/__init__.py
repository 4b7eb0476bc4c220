"""The registrar: keeps in ZooKeeper what MetaQ's clients need to find a shard's brokers. Off unless configured.

`registration` decides what is to be there, and how it comes about; `registrar` is its host; `zookeeper` is the thread
that talks with ZooKeeper, by kazoo.
"""
