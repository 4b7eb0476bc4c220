"""Replies about who a client is, and what it may do."""

from quorate.protocol import Reply


class AuthenticatedReply(Reply, kw_only=True):
    """The reply to authenticate: who the client is from now on, and what it may do, as the access file says it.

    `warning`: the token was not looked at, since the node knows none.
    """

    principal: str
    rights: list[str]
    warning: str | None = None


class NotAllowedReply(Reply, kw_only=True):
    """The refusal of what the client lacks the `right` to. `is_unproved`: it has not shown who it is, and could."""

    right: str
    is_unproved: bool = False
