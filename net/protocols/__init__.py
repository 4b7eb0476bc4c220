"""Codecs: a client's bytes to requests and back, without a socket."""
