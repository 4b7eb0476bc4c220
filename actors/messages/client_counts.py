"""What a worker's Listener counts: it alone writes here, and who tells how the node is reads, on the same loop."""


class ClientCounts:
    """One worker's. `requests`: since the start; `open_requests` are not answered. `started_at`: monotonic seconds.

    `limits_reached`: the limits' names, sorted. `warnings`: what is less safe than it could be. `runs`: which code.
    """

    def __init__(self, started_at: float = 0.0) -> None:
        self.started_at = started_at
        self.connections = 0
        self.requests = 0
        self.open_requests = 0
        self.limits_reached: list[str] = []
        self.warnings: list[str] = []
        self.runs = ""
