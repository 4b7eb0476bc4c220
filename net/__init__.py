"""Bytes to requests and back: framing and protocols as sessions without I/O, and the connections that use them.

A session takes bytes and says what is asked, and turns a `Reply` into bytes. A `Connection` is what one
client has: its session, the order of its replies, its limits. Only `tcp` and `udp` touch sockets.
"""

import quorate_compiled

quorate_compiled.choose()
