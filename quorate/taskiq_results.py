"""A result backend of taskiq: `broker.with_result_backend(QuorateResultBackend("quorate://127.0.0.1:1111"))`.

Results are messages of one queue (see `quorate.results`): one with a key replaces the one before, expires, and is
dropped then.
"""

from typing import Any, Final, TypeVar

from taskiq import AsyncResultBackend, TaskiqResult
from taskiq.abc.serializer import TaskiqSerializer
from taskiq.depends.progress_tracker import TaskProgress
from taskiq.exceptions import ResultGetError

from quorate.async_client import AsyncClient
from quorate.errors import RefusedError
from quorate.messages import ShownMessage
from quorate.packing import packed, unpacked
from quorate.protocol import ErrorWord
from quorate.results import EXPIRES_S, UNMARKED, key_of, ttl_of

QUEUE: Final = "taskiq.results"
PROGRESS: Final = "__progress"
VALUES: Final = ("return_value", "meta")
"""What a serializer gets as the task gave it: pydantic would make dictionaries of dataclasses."""


T = TypeVar("T")


class ResultIsMissingError(ResultGetError):
    """There is no result of that task: it has not ended, or its result has expired."""

    __template__ = "there is no result of this task: it has not ended, or its result has expired"


class QuorateResultBackend(AsyncResultBackend[T]):
    """Keeps results in the node or cluster at `url`, in `queue`; further `options` are those of `AsyncClient`.

    `expires`: a result is dropped after so many seconds (None: never). `keep_results` False: it is removed when it is
    read. `serializer`: of taskiq's; without one results are JSON, as pydantic writes them.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        queue: str = QUEUE,
        expires: float | None = EXPIRES_S,
        keep_results: bool = True,
        serializer: TaskiqSerializer | None = None,
        **options: Any,
    ) -> None:
        self.client = AsyncClient(url, **options)
        self.queue = queue
        self.expires = expires
        self.keep_results = keep_results
        self.serializer = serializer
        self._is_marked = False

    async def shutdown(self) -> None:
        """Give its connections back."""
        await self.client.close()
        await super().shutdown()

    async def set_result(self, task_id: str, result: TaskiqResult[T]) -> None:
        """Keep a task's result; returns when it is on disk."""
        await self._store(task_id, self._dumped(result))

    async def set_progress(self, task_id: str, progress: TaskProgress[Any]) -> None:
        """Keep how far a task is."""
        await self._store(task_id + PROGRESS, self._dumped(progress))

    async def is_result_ready(self, task_id: str) -> bool:
        """Say whether the task has a result."""
        return await self._look(task_id) is not None

    async def get_result(self, task_id: str, with_logs: bool = False, *, wait: float = 0.0) -> TaskiqResult[T]:
        """Return a task's result, as soon as there is one within `wait` seconds. Raises `ResultIsMissingError`."""
        found = await self._look(task_id, wait)
        if found is None:
            raise ResultIsMissingError
        if not self.keep_results:
            await self.client.confirm(found.msg_id)
        result: TaskiqResult[T] = self._loaded(TaskiqResult[Any], found)
        if not with_logs:
            result.log = None
        return result

    async def get_progress(self, task_id: str) -> TaskProgress[Any] | None:
        """Return how far a task is, as far as it has said so."""
        found = await self._look(task_id + PROGRESS)
        return None if found is None else self._loaded(TaskProgress[Any], found)

    def _dumped(self, model: Any) -> bytes:
        if self.serializer is None:
            return bytes(model.model_dump_json().encode())
        as_it_is = {name: value for name, value in model if name in VALUES}
        return self.serializer.dumpb({**model.model_dump(), **as_it_is})

    def _loaded(self, kind: Any, found: ShownMessage) -> Any:
        data = unpacked(found.data)
        if self.serializer is None:
            return kind.model_validate_json(data)
        return kind.model_validate(self.serializer.loadb(data))

    async def _look(self, key: str, wait: float = 0.0) -> ShownMessage | None:
        return await self.client.result(self.queue, key_of(key), wait=wait)

    async def _store(self, key: str, data: bytes) -> None:
        if not self._is_marked:
            await self._mark()
        await self.client.produce(
            self.queue,
            packed(data),
            key=key_of(key),
            ttl=ttl_of(self.expires),
            expire="drop",
            on_duplicate="replace",
        )

    async def _mark(self) -> None:
        """As `quorate.results.mark_system`."""
        try:
            await self.client.configure(self.queue, system=True, paused="out")
        except RefusedError as refused:
            if refused.error not in (*UNMARKED, ErrorWord.NOT_ALLOWED):
                raise
        self._is_marked = True
