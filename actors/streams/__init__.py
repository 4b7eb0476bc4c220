"""One shard's topics: what requests do to them, who reads which partition, and for how long messages are kept."""
