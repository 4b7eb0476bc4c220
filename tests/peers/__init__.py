"""Task queues and frameworks on real nodes, in an environment of their own: `make peers`."""
