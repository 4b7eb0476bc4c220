"""A client's session, and what becomes of whatever it raises: its client has made it, and that alone pays for it."""

from typing import Any, Final

from net.clients.connection_contract import Sink
from net.protocols.session import Ask, Fault, Found, Session
from quorate.protocol import Code, ErrorWord, Reply, Request

CANT_BE_READ: Final = "this can't be read"


class SessionGuard:
    """Of one `connection`, which each call is given for the `sink` to know whose session is broken."""

    __slots__ = ("_sink", "session")

    def __init__(self, session: Session, sink: Sink[Any]) -> None:
        self.session = session
        self._sink = sink

    def receive(self, connection: object, data: bytes) -> list[Found]:
        """Find what `data` completes; a fatal fault if the session fails."""
        try:
            return self.session.receive(data)
        except Exception as error:
            self._sink.broken(connection, error)
            return [Fault(ErrorWord.BAD_JSON, CANT_BE_READ, is_fatal=True)]

    def answered(
        self, connection: object, request: Request | None, reply: Reply, note: Any
    ) -> bytes | Request | Ask | None:
        """Make of a reply what the session does. None: it failed, and there is nothing true to say in its place."""
        try:
            made: Any = self.session.answered(request, reply, note)
            if type(made) is bytes:  # nearly always
                return made
            if isinstance(made, (bytes, Request, Ask)):
                return made
            raise TypeError(f"{type(made).__name__} is no answer")
        except Exception as error:
            self._sink.broken(connection, error)
            return None

    def fault_reply(self, connection: object, fault: Fault) -> Reply:
        """Make the reply to a fault."""
        try:
            return self.session.fault_reply(fault)
        except Exception as error:
            self._sink.broken(connection, error)
            return Reply(action=0, code=Code.ERROR, error=fault.error, reason=fault.reason)

    def state(self, connection: object) -> bytes | None:
        """Give what its protocol needs to go on elsewhere; None: it can't now."""
        try:
            return self.session.state
        except Exception as error:
            self._sink.broken(connection, error)
            return None

    def resume(self, connection: object, state: bytes) -> bool:
        """Go on where another worker's has stopped, and whether it can."""
        try:
            self.session.resume(state)
        except Exception as error:
            self._sink.broken(connection, error)
            return False
        return True

    def discard(self, connection: object) -> None:
        """Nothing more is received, so nothing of a request that is not whole is kept."""
        try:
            self.session.discard()
        except Exception as error:
            self._sink.broken(connection, error)
