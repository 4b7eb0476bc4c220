"""One shard's queues: what requests do to them, who gets which message, when an answer may leave."""
