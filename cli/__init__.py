"""qctl: the command line. Thin commands over the client library and the node's own parts."""
