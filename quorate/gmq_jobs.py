"""How a message is told as a job of gmq's: its protocol's session and its monitor go by the same rules."""


def ttr_of(ttr: int | None, retry_s: float) -> int:
    """Give the TTR that a job was pushed with; of a message of another protocol its retry time, rounded up (s)."""
    return -int(-retry_s // 1) if ttr is None else ttr


def job_id(key: str | None, scope: str | None, msg_id: int) -> str:
    """Give what an Ack names a message by: the key that only it has among all, or its number."""
    return key if scope is not None and key is not None else str(msg_id)
