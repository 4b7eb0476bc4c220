"""Linux's own asynchronous writes: the loop begins one, the kernel finishes it, and no thread waits. See io_submit(2).

A direct write into space that is there is under way when `io_submit` returns, some 20 us of the kernel's work; that it
is on the disk is told by an eventfd. The system's calls are called by number, through ctypes: glibc does not wrap them,
and libraries that do have no say in where a buffer begins, which direct writes insist on. Their numbers and the layout
of `struct iocb` and `struct io_event` are the kernel's ABI (linux/aio_abi.h, asm-generic/unistd.h).
"""

import ctypes
import mmap
import os
import platform
import resource
import select
import struct
import sys
import time
from typing import Any, Final, NamedTuple

from storage.disk import DiskFile

SLOTS: Final = 4
"""Writes that may be under way at once: more than the journal ever has."""

SLOT_BYTES: Final = 1 << 20
"""A larger write is nobody's who waits for a quick reply. Memory that was never used costs nothing."""

_BLOCK: Final = struct.Struct("<QIIHhIQQqQII")
"""iocb: data, key, flags, opcode, priority, descriptor, buffer, bytes, offset, reserved, flags, eventfd."""
_EVENT: Final = struct.Struct("<QQqq")
"""io_event: data, iocb, result, result2."""
_WRITE: Final = 1  # IOCB_CMD_PWRITE
_TELL: Final = 1  # IOCB_FLAG_RESFD: by the eventfd


class _Numbers(NamedTuple):
    """Of the system's calls."""

    setup: int
    destroy: int
    getevents: int
    submit: int


_GENERIC: Final = _Numbers(setup=0, destroy=1, getevents=4, submit=2)
_NUMBERS: Final = {
    "x86_64": _Numbers(setup=206, destroy=207, getevents=208, submit=209),
    "aarch64": _GENERIC,
    "riscv64": _GENERIC,
    "loongarch64": _GENERIC,
}


class LinuxAio:
    """`AsyncWrites` by Linux, for one thread. Raises OSError where the system has none, or gives no more."""

    def __init__(self, numbers: _Numbers) -> None:
        self._memory = mmap.mmap(-1, SLOTS * SLOT_BYTES)
        self._blocks = mmap.mmap(-1, mmap.PAGESIZE)
        self._events = mmap.mmap(-1, mmap.PAGESIZE)
        self._address = _address(self._memory)
        first = _address(self._blocks)
        self._pointers = (ctypes.c_uint64 * SLOTS)(*(first + slot * _BLOCK.size for slot in range(SLOTS)))
        self._free = list(range(SLOTS))
        self._under_way: dict[int, tuple[int, int]] = {}
        self._call = _system_call()
        self.descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        context = ctypes.c_ulong(0)
        if self._call(numbers.setup, SLOTS, ctypes.byref(context)) != 0:
            os.close(self.descriptor)
            raise OSError("io_setup refuses")
        one = ctypes.c_long(1)
        pointers_at = ctypes.addressof(self._pointers)
        # made once: to make a C number of each argument takes longer than the rest of a call
        self._submit: list[Any] = [
            (ctypes.c_long(numbers.submit), context, one, ctypes.c_void_p(pointers_at + 8 * slot))
            for slot in range(SLOTS)
        ]
        events_at = ctypes.c_void_p(_address(self._events))
        count = ctypes.c_long(SLOTS)
        self._getevents: Any = (ctypes.c_long(numbers.getevents), context, ctypes.c_long(0), count, events_at, None)
        self._destroy: Any = (ctypes.c_long(numbers.destroy), context)

    def start(self, file: DiskFile, offset: int, data: bytes, token: int) -> bool:
        """One system call; the bytes are copied to where direct writes may come from."""
        size = len(data)
        if file.direct_fd < 0 or size > SLOT_BYTES or not self._free:
            return False
        slot = self._free.pop()
        at = slot * SLOT_BYTES
        self._memory[at : at + size] = data
        where = (file.direct_fd, self._address + at, size, offset, 0)
        _BLOCK.pack_into(self._blocks, slot * _BLOCK.size, slot, 0, 0, _WRITE, 0, *where, _TELL, self.descriptor)
        if self._call(*self._submit[slot]) != 1:
            self._free.append(slot)
            return False
        self._under_way[slot] = (token, size)
        return True

    def used(self) -> tuple[int, float]:
        """By getrusage(2): a voluntary switch is a wait; another process, or another machine, makes none."""
        usage = resource.getrusage(resource.RUSAGE_THREAD)
        return usage.ru_nvcsw, usage.ru_utime + usage.ru_stime

    def finished(self) -> list[tuple[int, bool]]:
        """Take the writes that are done. The eventfd is read first: who ends after that makes it readable again."""
        try:
            os.eventfd_read(self.descriptor)
        except BlockingIOError:
            return []
        count = self._call(*self._getevents)
        ended: list[tuple[int, bool]] = []
        for number in range(count):
            slot, _, result, _ = _EVENT.unpack_from(self._events, number * _EVENT.size)
            token, size = self._under_way.pop(slot)
            self._free.append(slot)
            ended.append((token, result == size))
        return ended

    def close(self, timeout_s: float) -> bool:
        """`io_destroy` would wait for what is under way, however long."""
        until = time.monotonic() + timeout_s
        poll = select.poll()
        poll.register(self.descriptor, select.POLLIN)
        while self._under_way:
            left_s = until - time.monotonic()
            if left_s < 0:
                return False
            if poll.poll(left_s * 1000):
                self.finished()
        self._call(*self._destroy)
        os.close(self.descriptor)
        return True


def open_linux_aio() -> LinuxAio | None:
    """Ask the system; None if it has no such writes, a sandbox forbids them, or there are too many."""
    numbers = _NUMBERS.get(platform.machine())
    if numbers is None or sys.platform != "linux" or sys.maxsize < 1 << 32 or sys.byteorder != "little":
        return None
    try:
        return LinuxAio(numbers)
    except OSError:
        return None


def _system_call() -> Any:
    """syscall(2). It keeps the interpreter: to let go of it would cost more than a call does."""
    call = ctypes.PyDLL(None).syscall
    call.restype = ctypes.c_long
    return call


def _address(memory: mmap.mmap) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(memory))
