"""Links between nodes: frames, messages, sockets."""
