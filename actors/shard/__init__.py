"""One shard: its owner, and what all of its machines share: the ledger, lease and log of what they do."""
