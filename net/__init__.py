"""Bytes to requests and back: framing and protocols as codecs without I/O, and the connections that use them.

A codec takes bytes and gives `Request`s and `Fault`s, and turns a `Reply` into bytes. A `Connection` is what one
client has: its codec, the order of its replies, its limits. Only `tcp` and `udp` touch sockets.
"""

import quorate_compiled

quorate_compiled.choose()
