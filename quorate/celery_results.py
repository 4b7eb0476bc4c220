"""A result backend of Celery: `result_backend = "quorate://127.0.0.1:1111"`, beside the broker's URL or without it.

Results, groups and what is known of chords are messages of one queue (`results`, see there). Who waits for a result is
told by the node: nothing is polled. The parts of a chord gather in a queue of its own, `QUEUE.chord.GROUP`, in which
ready messages are parts, and delayed ones say how many are wanted; whoever puts in the last part starts the body.
"""

import logging
import time
from collections import deque
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, Final

from celery import exceptions, states
from celery.backends.base import KeyValueStoreBackend
from celery.canvas import maybe_signature
from celery.exceptions import ChordError
from celery.result import GroupResult, allow_join_result
from celery.utils.functional import _regen
from kombu.utils.encoding import bytes_to_str, ensure_bytes

from quorate.client import Client
from quorate.errors import (
    ConnectionFailedError,
    DuplicateKeyError,
    NotAllowedError,
    UnavailableError,
    UnknownOutcomeError,
)
from quorate.messages import NEVER, Produced, random_key
from quorate.nodes import Address
from quorate.packing import packed, unpacked
from quorate.results import Results, key_of, mark_system, ttl_of
from quorate.urls import parse_url

log = logging.getLogger("quorate.celery")

QUEUE: Final = "celery.results"
WAIT_S: Final = 20.0
"""A wait for a result is asked for anew after so long."""

LOOK_MAX: Final = 50
"""Of many results that are waited for so many are looked at beside the first, every half second."""

TIMEOUT_S: Final = 10.0
FAR_S: Final = 10 * 365 * 86_400.0
"""For so long what is not a part of a chord is delayed, where its parts never expire."""

CLAIM_S: Final = 15.0
CLAIM_POLL_S: Final = 0.5
"""The worker that starts a chord's body has so long. If it is killed meanwhile, the worker that gets its part again
starts it afterwards."""

KEY_MAX: Final = 120
"""Bytes of a group's id that its chord's queue is called by; a longer one by a hash."""

STARTED: Final = "started"

SIZE: Final = "size"
INDEX: Final = "index"


class QuorateBackend(KeyValueStoreBackend):
    """Keeps results in the node or cluster of its URL: several nodes by commas, or URLs by semicolons.

    `result_backend_transport_options`: `queue` (where results are kept), `timeout` (s, of each request), `tls`, `ca`,
    `cert`, `key`, `token`, as of `Client`. What is as old as `result_expires` is dropped.
    """

    supports_autoexpire = True
    supports_native_join = True
    persistent = True

    def __init__(self, app: Any, url: str | None = None, expires: Any = None, **options: Any) -> None:
        super().__init__(app, url=url, **options)
        self.url = url
        self._may_manage = True
        self.expires = self.prepare_expires(expires, type=int)

    def __reduce__(self, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> Any:
        return super().__reduce__(args, {**(kwargs or {}), "expires": self.expires, "url": self.url})

    def as_uri(self, include_password: bool = False) -> str:
        """Return the URL, without tokens unless asked for."""
        if include_password or not self.url:
            return self.url or "quorate://"
        return ";".join(f"quorate://**@{one.rpartition('@')[2]}" if "@" in one else one for one in self.url.split(";"))

    @cached_property
    def results(self) -> Results:
        """Where they are."""
        given = dict(self.app.conf.get("result_backend_transport_options") or {})
        queue = str(given.get("queue") or QUEUE)
        options = {name: given[name] for name in ("tls", "ca", "cert", "key", "token") if given.get(name) is not None}
        return Results(_client(self.url, float(given.get("timeout") or TIMEOUT_S), options), queue)

    @property
    def _parts_expire_s(self) -> float | None:
        """So long a chord is kept (s) on which nothing comes; Celery before 5.7 has no time of its own for that."""
        found = getattr(self, "chord_expires", self.expires)
        return None if found is None else float(found)

    def cleanup(self) -> None:
        """Do nothing: what is too old goes by itself."""

    def exception_safe_to_retry(self, exc: Exception) -> bool:
        """Say whether `result_backend_always_retry` tries again: all that is done here may be done twice."""
        return isinstance(exc, ConnectionFailedError | UnavailableError | UnknownOutcomeError)

    # -- single results ----------------------------------------------------------------------------------------

    def get(self, key: bytes | str) -> bytes | None:
        """Return what is kept under the key."""
        return self.results.get(bytes_to_str(key))

    def mget(self, keys: list[bytes]) -> list[bytes | None]:
        """Return what is kept under each key, in their order."""
        return [self.get(key) for key in keys]

    def set(self, key: bytes | str, value: bytes | str) -> None:
        """Keep that under the key, until it expires; it is on disk then."""
        self.results.store(bytes_to_str(key), ensure_bytes(value), self.expires)

    def delete(self, key: bytes | str) -> None:
        """Remove what is kept under the key."""
        self.results.delete(bytes_to_str(key))

    def wait_for(
        self,
        task_id: str,
        timeout: float | None = None,
        interval: float = 0.5,
        no_ack: bool = True,
        on_interval: Callable[[], Any] | None = None,
    ) -> Any:
        """Return what is known of a task as soon as it has ended. Raises celery's TimeoutError."""
        self._ensure_not_eager()
        until = None if timeout is None else time.monotonic() + timeout
        key, seen, meta = bytes_to_str(self.get_key_for_task(task_id)), None, None
        while True:
            left_s = WAIT_S if until is None else max(until - time.monotonic(), 0.0)
            found = self.results.look(key, wait=min(left_s, interval if on_interval else WAIT_S), unless=seen)
            if found is not None:
                meta, seen = self.decode_result(unpacked(found.data)), found
            if on_interval is not None:
                on_interval()  # also when it has ended: that raises what a parent failed with
            if meta is not None and meta["status"] in states.READY_STATES:
                return meta
            if until is not None and time.monotonic() >= until:
                raise exceptions.TimeoutError("The operation timed out.")

    def get_many(
        self,
        task_ids: Any,
        timeout: float | None = None,
        interval: float | None = 0.5,
        *,
        no_ack: bool = True,
        on_message: Callable[[Any], Any] | None = None,
        on_interval: Callable[[], Any] | None = None,
        max_iterations: int | None = None,
        READY_STATES: Any = states.READY_STATES,  # noqa: N803  # it is Celery's name
    ) -> Iterator[tuple[str, Any]]:
        """Give each task's id and what is known of it, as they end. Raises celery's TimeoutError."""
        until = None if timeout is None else time.monotonic() + timeout
        slice_s = (interval or 0.5) if on_interval is not None or max_iterations else WAIT_S
        left, rounds = deque(dict.fromkeys(bytes_to_str(task_id) for task_id in task_ids)), 0
        wait_s, looked_at = 0.0, 0.0
        while left:
            ended = self._ended_of([left[0]], wait_s, READY_STATES)
            if time.monotonic() >= looked_at + (interval or 0.5):  # others may have ended before the first
                left.rotate(-1)
                ended += self._ended_of([left[at] for at in range(min(LOOK_MAX, len(left) - 1))], 0.0, READY_STATES)
                left.rotate(1 - LOOK_MAX)
                looked_at = time.monotonic()
            for task_id, meta in ended:
                left.remove(task_id)
                if on_message is not None:
                    on_message(meta)
                yield task_id, meta
            if not left:
                return
            if until is not None and time.monotonic() >= until:
                raise exceptions.TimeoutError(f"Operation timed out ({timeout})")
            if on_interval is not None:
                on_interval()
            rounds += 1
            if max_iterations and rounds >= max_iterations:
                return
            next_s = slice_s if len(left) == 1 else min(slice_s, interval or 0.5)
            wait_s = next_s if until is None else max(min(next_s, until - time.monotonic()), 0.001)

    def _ended_of(self, task_ids: list[str], wait_s: float, ready_states: Any) -> list[tuple[str, Any]]:
        """List those of the tasks that have ended, with what is known of them."""
        found = [(task_id, self._meta_in_time(task_id, wait_s, ready_states)) for task_id in task_ids]
        return [(task_id, meta) for task_id, meta in found if meta is not None]

    def _meta_in_time(self, task_id: str, wait_s: float, ready_states: Any) -> Any:
        """Return what is known of a task that has ended, or ends within `wait_s`; else None."""
        cached = self._cache.get(task_id) if hasattr(self._cache, "get") else None
        if cached is not None and cached["status"] in ready_states:
            return cached
        until = time.monotonic() + wait_s
        key, seen = bytes_to_str(self.get_key_for_task(task_id)), None
        while True:
            found = self.results.look(key, wait=max(until - time.monotonic(), 0.0) if wait_s else 0.0, unless=seen)
            if found is None:
                return None
            meta, seen = self.decode_result(unpacked(found.data)), found
            if meta["status"] in ready_states:
                self._cache[task_id] = meta
                return meta
            if not wait_s:
                return None

    # -- chords ------------------------------------------------------------------------------------------------

    def _chord_queue(self, group_id: str) -> str:
        return f"{self.results.queue}.chord.{key_of(group_id, KEY_MAX)}"

    def _open_chord(self, group_id: str) -> None:
        """Let the chord's queue live on for as long as a chord may take."""
        expires_s = self._parts_expire_s
        settings = {"expires_after": expires_s} if expires_s else {}
        self._may_manage = mark_system(self.results.client, self._chord_queue(group_id), paused="out", **settings)

    def _put(self, group_id: str, data: bytes | int, key: str, **options: Any) -> bool:
        """Put a message into the chord's queue. It goes with that queue, or by itself where the queue can't be told to.

        Returns whether it was there before.
        """
        ttl_s = NEVER if self._may_manage else ttl_of(self._parts_expire_s)
        produced = self.results.client.produce(
            self._chord_queue(group_id),
            packed(data) if isinstance(data, bytes) else data,
            key=key_of(key),
            expire="drop",
            **{"ttl": ttl_s, "on_duplicate": "keep", **options},
        )
        return isinstance(produced, Produced) and produced.is_duplicate

    def _put_mark(self, group_id: str, data: int, key: str, **options: Any) -> None:
        """Put in what is no part: it is delayed for longer than parts live."""
        far_s = FAR_S if self._may_manage else (self._parts_expire_s or FAR_S)
        ttl_s = NEVER if self._may_manage else far_s + 1
        self._put(group_id, data, key, delay=far_s, ttl=ttl_s, **options)

    def apply_chord(self, header_result_args: Any, body: Any, **kwargs: Any) -> None:
        """Keep a header with groups in it, whose shape its parts do not tell; nothing else is to be done before.

        A header that a generator makes is not looked at: that would make all of it.
        """
        self.ensure_chords_allowed()
        if not isinstance(header_result_args[1], _regen):
            header = self.app.GroupResult(*header_result_args)
            if any(isinstance(one, GroupResult) for one in header.results):
                header.save(backend=self)

    def set_chord_size(self, group_id: str, chord_size: int) -> None:
        """Note how many parts the chord has. One that was frozen may begin again under the same id."""
        self._open_chord(group_id)
        self.results.delete(self._claim_key(group_id))
        self._put_mark(group_id, chord_size, SIZE, on_duplicate="replace")

    def add_to_chord(self, chord_id: str, result: Any) -> None:
        """Note that the chord has one part more."""
        self._open_chord(chord_id)
        self._put_mark(chord_id, 1, random_key())

    def on_chord_part_return(self, request: Any, state: str, result: Any, **kwargs: Any) -> None:
        """Put a part in; if it is the last, start the chord's body with all of them."""
        task_id, group_id = request.id, request.group
        if not group_id or not task_id:
            return
        encoded = ensure_bytes(self.encode([1, task_id, state, self.encode_result(result, state)]))
        index = request.group_index
        self._open_chord(group_id)
        came_again = self._put(group_id, encoded, task_id, headers={INDEX: str("" if index is None else index)})
        if self._has_all(group_id) and self._claim(group_id, waits=came_again):
            self._start(request, group_id)

    def _has_all(self, group_id: str) -> bool:
        """Whether all parts are there that are wanted, as far as that is known."""
        client, queue = self.results.client, self._chord_queue(group_id)
        size = client.result(queue, SIZE)
        if size is None:  # its other parts are still being sent, or the chord is done
            return False
        counts = client.monitor(queue)
        return int(counts["ready"]) == int(size.data) + int(counts["delayed"]) - 1

    def _claim(self, group_id: str, *, waits: bool) -> bool:
        """Whether this worker is to start the body: the first that has seen all parts.

        `waits`: its part had come before, perhaps to a worker that was killed with the claim. If that claim ends and
        the body was not started, this worker has it.
        """
        client, queue, key = self.results.client, self.results.queue, self._claim_key(group_id)
        claim_s = max(CLAIM_S, 2 * (self.app.conf.result_chord_join_timeout or 0))
        until = time.monotonic() + 2 * claim_s
        while True:
            try:  # with data of its own: a repeat whose first try was done finds itself
                client.produce(queue, random_key(), key=key, ttl=claim_s, expire="drop")
            except DuplicateKeyError:
                if not waits or time.monotonic() >= until:
                    return False
            else:
                return True
            claimed = client.result(queue, key)
            if claimed is not None and claimed.data == STARTED:
                return False
            time.sleep(CLAIM_POLL_S)

    def _claim_key(self, group_id: str) -> str:
        return key_of(f"chord-claim-{group_id}")

    def _start(self, request: Any, group_id: str) -> None:
        callback = maybe_signature(request.chord, app=self.app)
        try:
            found = self._joined(group_id)
            try:
                self._publish(callback.delay, found)
            except Exception as error:
                log.exception("Chord callback for %r raised: %r", group_id, error)
                self.chord_error_from_stack(callback, ChordError(f"Callback error: {error!r}"))
        except ChordError as error:
            log.exception("Chord %r raised: %r", group_id, error)
            self.chord_error_from_stack(callback, error)
        except Exception as error:
            log.exception("Chord %r raised: %r", group_id, error)
            self.chord_error_from_stack(callback, ChordError(f"Join error: {error!r}"))
        client = self.results.client
        client.produce(
            *(self.results.queue, STARTED),
            key=self._claim_key(group_id),
            ttl=ttl_of(self._parts_expire_s),
            expire="drop",
            on_duplicate="replace",
        )
        try:
            client.remove(self._chord_queue(group_id))
        except NotAllowedError as refused:
            log.warning("the queue of chord %r stays, and is emptied: %s", group_id, refused.reason)
            for state in ("ready", "delayed"):
                for message in list(client.browse(self._chord_queue(group_id), state)):
                    client.confirm(message.msg_id)

    def _publish(self, send: Callable[[Any], Any], found: list[Any]) -> None:
        """Send a chord's body, as often as Celery tries that: from 5.7 on more than once."""
        retrying = getattr(self.app.amqp, "_retry_publish", None)
        if retrying is None:
            send(found)
        else:
            retrying(send, found)

    def _joined(self, group_id: str) -> list[Any]:
        """Return the parts' results in their order. Raises ChordError where one has failed."""
        header = GroupResult.restore(group_id, app=self.app, backend=self)
        if header is not None:
            header.on_ready()
            join = header.join_native if header.supports_native_join else header.join
            with allow_join_result():
                return list(join(timeout=self.app.conf.result_chord_join_timeout, propagate=True))
        parts = list(self.results.client.browse(self._chord_queue(group_id), "ready"))
        parts.sort(key=lambda part: (float(part.headers.get(INDEX) or "inf"), part.msg_id))
        return [self._returned(*self.decode(unpacked(part.data))) for part in parts]

    def _returned(self, version: int, task_id: str, state: str, value: Any) -> Any:
        if state in states.EXCEPTION_STATES:
            value = self.exception_to_python(value)
        if state in states.PROPAGATE_STATES:
            raise ChordError(f"Dependency {task_id} raised {value!r}") from value
        return value


def _client(url: str | None, timeout_s: float, options: dict[str, Any]) -> Client:
    """Make the client of one URL, or of several by semicolons, which name nodes of one cluster."""
    urls = [one.strip() for one in (url or "").split(";") if one.strip() not in ("", "quorate://")]
    if len(urls) < 2:
        return Client(urls[0] if urls else None, timeout=timeout_s, **options)
    nodes: list[Address | str] = []
    token: str | None = None
    has_tls = False
    for one in urls:
        addresses, shown = parse_url(one)
        nodes += addresses
        token, has_tls = shown.token or token, shown.has_tls or has_tls
        options = {**{name: getattr(shown, name) for name in ("ca", "cert", "key") if getattr(shown, name)}, **options}
    return Client(nodes=nodes, timeout=timeout_s, **{"token": token, "tls": has_tls, **options})
