"""What waits for the disk: the journal's writes and LMDB."""
