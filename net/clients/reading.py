"""Whether a client is read from: its transport is told when that changes. A machine, but for that."""

from net.clients.connection_contract import Transport


class Reading:
    """Of one client. `is_stalled`: it does not read its replies, so nothing is read from it.

    `is_cut`: it has had its turn, or has it just now; the rest of what it sent is looked at in the next.
    """

    __slots__ = ("_transport", "is_cut", "is_paused", "is_stalled")

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self.is_cut = False
        self.is_paused = False
        self.is_stalled = False

    def pause(self, should_pause: bool) -> None:
        """Read on, or do not."""
        if should_pause == self.is_paused:
            return
        self.is_paused = should_pause
        if should_pause:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()
