"""The data pipeline's place: Spark jobs that archive, report on and replay the change log.

It imports `storage.entry` and `storage.records` to decode what the node wrote, and `quorate` to talk to a node;
nothing of the node imports it.
"""
