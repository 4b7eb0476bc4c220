"""A result backend of dramatiq: `Results(backend=QuorateResultBackend("quorate://127.0.0.1:1111"))`.

Results are messages of one queue (`results`, see there). Who waits for one is told by the node: nothing is polled.
"""

import time
from typing import Any, Final

from dramatiq import Message
from dramatiq.results import Missing, ResultBackend, ResultMissing, ResultTimeout
from dramatiq.results.backend import DEFAULT_TIMEOUT

from quorate.client import Client
from quorate.packing import unpacked
from quorate.results import Results

QUEUE: Final = "dramatiq.results"
WAIT_S: Final = 20.0
"""A wait for a result is asked for anew after so long."""


class QuorateResultBackend(ResultBackend):
    """Keeps results in the node or cluster at `url`, or that `client` asks; further `options` are those of `Client`.

    They are in the queue `queue`. `namespace`, `encoder` and `use_namespace_prefix_keys` are dramatiq's.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        client: Client | None = None,
        queue: str = QUEUE,
        namespace: str = "dramatiq-results",
        encoder: Any = None,
        use_namespace_prefix_keys: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(namespace=namespace, encoder=encoder, use_namespace_prefix_keys=use_namespace_prefix_keys)
        if client is not None and (url is not None or options):
            raise ValueError("a client is given, and what it is to be made of as well: one of them is wanted")
        self.results = Results(client or Client(url, **options), queue)

    def get_result(self, message: Message[Any], *, block: bool = False, timeout: int | None = None) -> Any:
        """Return the message's result. With `block` it is waited for, `timeout` ms at most (10 s).

        Raises ResultMissing, ResultTimeout, and what the actor raised as ResultFailure.
        """
        until = time.monotonic() + (DEFAULT_TIMEOUT if timeout is None else timeout) / 1000
        key = self.build_message_key(message)
        while True:
            wait_s = min(max(until - time.monotonic(), 0.0), WAIT_S) if block else 0.0
            found = self._get(key, wait_s)
            if found is not Missing:
                return self.unwrap_result(found)
            if not block:
                raise ResultMissing(message)
            if time.monotonic() >= until:
                raise ResultTimeout(message)

    def _get(self, message_key: str, wait: float = 0.0) -> Any:
        found = self.results.look(message_key, wait=wait)
        return Missing if found is None else self.encoder.decode(unpacked(found.data))

    def _store(self, message_key: str, result: Any, ttl: int) -> None:
        self.results.store(message_key, self.encoder.encode(result), max(ttl, 1) / 1000)
