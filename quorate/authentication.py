"""The reply to authenticate: the node that a client is connected to gives it, and no other."""

from quorate.protocol import Reply


class AuthenticatedReply(Reply, kw_only=True):
    """Who the client is from now on, and what it may do, as the access file says it."""

    principal: str
    rights: list[str]
