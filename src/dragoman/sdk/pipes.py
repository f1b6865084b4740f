"""Messages between a worker and its child processes, on a socket pair: kind, flag, job number and bytes. The parent
numbers the jobs of a child process; every message about a job carries its number.

Nothing is ever unpickled. The parent's end never blocks (a stream feeds `PipeReader`). The child's end blocks
(`ChildPipe`), except when a handler checks for cancellation.
"""

from __future__ import annotations

import os
import select
import socket
import threading
from collections.abc import Callable, Sequence
from struct import Struct
from typing import Final

from dragoman.carriers.carrier import UNBOUNDED, Frame, Messages, Reader
from dragoman.carriers.large_frame import LARGE_FRAME, LargeFrame
from dragoman.sdk.parent_death import exit_if_forked

HEAD: Final = Struct(">IBBI")  # bytes after the head, kind, flag, number of the job (0: none)
SHORT_HEAD: Final = Struct(">BBI")  # the head without the size
# Number of the service, attempt, seconds (0: no limit), seconds in the queue (-1: not known), bytes of the job's id and
# of its traceparent.
JOB_HEAD: Final = Struct(">HHddBB")

# Kinds of messages from the parent.
JOB, CANCEL = b"JC"
# Kinds of messages from a child process. The flag of DONE and FAILED means that it exceeds max_memory.
READY, BROKEN, DONE, FAILED, PROGRESS, PART = b"RBDFPE"

READ_BYTES: Final = 1 << 16


def encode(kind: int, job: int = 0, payload: Frame = b"", flag: int = 0) -> bytes:
    """Encode a small message."""
    return HEAD.pack(len(payload), kind, flag, job) + payload


class PipeReader(Reader):
    """The parent's decoder, fed by a stream. A message is its head without the size, and its bytes."""

    __slots__ = ("_buffered", "_head", "_large")

    def __init__(self) -> None:
        self.gap: memoryview | None = None
        self.most = UNBOUNDED
        self.rest = b""
        self._buffered = b""
        self._large: LargeFrame | None = None
        self._head = b""  # head of the large message that is being received

    def feed(self, data: bytes) -> Messages:
        if self._buffered:
            data, self._buffered = self._buffered + data, b""
        messages: Messages = []
        start, end = 0, len(data)
        while end - start >= HEAD.size:
            size = HEAD.unpack_from(data, start)[0]
            body = start + HEAD.size
            if body + size > end:
                if size >= LARGE_FRAME:
                    self._head = data[body - SHORT_HEAD.size : body]
                    self._large = LargeFrame(size, end - body)
                    self._large.pour(data, body)
                    self.gap = self._large.gap
                    return messages
                break
            messages.append([data[body - SHORT_HEAD.size : body], data[body : body + size]])
            start = body + size
        if start < end:
            self._buffered = data[start:]
        return messages

    def fill(self, count: int) -> Messages:
        large = self._large
        assert large is not None, "no large message is being received"
        large.fill(count)
        self.gap = large.gap
        if self.gap is not None:
            return []
        self._large = None
        return [[self._head, large.buffer]]


class ChildPipe:
    """The child's end. Handlers may report from several threads.

    A process forked by a handler inherits this end, but ends as soon as it uses it."""

    def __init__(self, connected: socket.socket) -> None:
        connected.setblocking(True)
        self._socket = connected
        self._process = os.getpid()
        self._buffered = b""
        self._lock = threading.Lock()
        self._check_lock = threading.Lock()
        self._poll: Callable[[int], Sequence[object]]  # finds out whether bytes wait, without waiting for them
        if hasattr(select, "poll"):
            poll = select.poll()
            poll.register(connected, select.POLLIN)
            self._poll = poll.poll
        else:  # Windows
            self._poll = lambda _: select.select([connected], [], [], 0)[0]
        self.is_cancelled = False

    def exit_if_forked(self) -> None:
        """End a process that a handler forked. Call it before taking a lock: a fork may copy a locked one."""
        exit_if_forked(self._process)

    def receive(self) -> tuple[int, int, Frame]:
        """Wait for the next message. Returns kind, job number and bytes. Raises EOFError if the parent has ended."""
        self.exit_if_forked()
        data = self._buffered or self._read()
        while len(data) < HEAD.size:
            data += self._read()
        size, kind, _, job = HEAD.unpack_from(data)
        whole = HEAD.size + size
        if len(data) < whole:
            return kind, job, self._read_large(data, whole)
        self._buffered = data[whole:]
        return kind, job, data[HEAD.size : whole]

    def check_cancelled(self) -> bool:
        """Return whether the parent has cancelled the running job. Costs one system call while it has not."""
        if not self.is_cancelled and (self._buffered or self._poll(0)):  # CANCEL may have arrived with the job
            with self._check_lock:
                if self._buffered or self._poll(0):  # else another thread has read it
                    kind, _, _ = self.receive()  # raises EOFError in the handler if the worker has ended
                    assert kind == CANCEL, "a job arrived while another one ran"
                    self.is_cancelled = True
        return self.is_cancelled

    def send_message(self, kind: int, job: int = 0, payload: Frame = b"", flag: int = 0) -> None:
        self.exit_if_forked()
        with self._lock:
            if len(payload) < LARGE_FRAME:
                self._socket.sendall(encode(kind, job, payload, flag))
            else:
                self._socket.sendall(HEAD.pack(len(payload), kind, flag, job))
                self._socket.sendall(payload)

    def _read(self) -> bytes:
        data = self._socket.recv(READ_BYTES)
        if not data:
            raise EOFError("the worker has ended")
        return data

    def _read_large(self, data: bytes, whole: int) -> bytearray:
        buffer = bytearray(whole - HEAD.size)
        count = len(data) - HEAD.size
        buffer[:count] = data[HEAD.size :]
        with memoryview(buffer) as view:
            while count < len(buffer):
                received = self._socket.recv_into(view[count:])
                if not received:
                    raise EOFError("the worker has ended")
                count += received
        self._buffered = b""
        return buffer
