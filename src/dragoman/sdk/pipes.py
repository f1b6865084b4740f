"""What a worker and its child processes say to each other: messages of a kind, a flag, a job and bytes, on a socket
pair. The parent numbers the jobs of a child, and every answer of the child has the number of its job.

Nothing here is ever unpickled. The parent's end never blocks (`PipeReader` stands behind a stream), the child's always
does (`ChildPipe`), but for the moment in which a handler asks whether it was cancelled.
"""

from __future__ import annotations

import os
import select
import socket
import threading
from struct import Struct
from typing import Final

from dragoman.carriers.carrier import Frame, Messages, Reader
from dragoman.carriers.large_frame import LARGE_FRAME, LargeFrame
from dragoman.sdk.parent_death import exit_if_forked

HEAD: Final = Struct(">IBBI")  # bytes behind the head, kind, flag, number of the job (0: none)
SAID: Final = Struct(">BBI")  # the head without the size
ORDER: Final = Struct(">HHdB")  # which service, attempt, seconds (0: no limit), bytes of the job's id

# What a parent says.
JOB, CANCEL = b"JC"
# What a child says. The flag of DONE and FAILED says that it has grown too large, and wants to be replaced.
READY, BROKEN, DONE, FAILED, PROGRESS, PART = b"RBDFPE"

READ_BYTES: Final = 1 << 16


def encode(kind: int, job: int = 0, payload: Frame = b"", flag: int = 0) -> bytes:
    """A small message, whole."""
    return HEAD.pack(len(payload), kind, flag, job) + payload


class PipeReader(Reader):
    """The parent's ear, as a stream wants it. A message is its head without the size, and its bytes."""

    __slots__ = ("_held", "_large", "_said")

    def __init__(self) -> None:
        self.gap: memoryview | None = None
        self._held = b""
        self._large: LargeFrame | None = None
        self._said = b""  # head of the message whose large rest is on its way

    def feed(self, data: bytes) -> Messages:
        if self._held:
            data, self._held = self._held + data, b""
        messages: Messages = []
        start, end = 0, len(data)
        while end - start >= HEAD.size:
            size = HEAD.unpack_from(data, start)[0]
            body = start + HEAD.size
            if body + size > end:
                if size >= LARGE_FRAME:
                    self._said = data[body - SAID.size : body]
                    self._large = LargeFrame(size, end - body)
                    self._large.pour(data, body)
                    self.gap = self._large.gap
                    return messages
                break
            messages.append([data[body - SAID.size : body], data[body : body + size]])
            start = body + size
        if start < end:
            self._held = data[start:]
        return messages

    def fill(self, count: int) -> Messages:
        large = self._large
        assert large is not None, "nothing large is on its way"
        large.fill(count)
        self.gap = large.gap
        if self.gap is not None:
            return []
        self._large = None
        return [[self._said, large.buffer]]


class ChildPipe:
    """A child's end. Handlers may report from several threads.

    A process that a handler forks has this end, too. It never uses it: it ends as soon as it tries to."""

    def __init__(self, connected: socket.socket) -> None:
        connected.setblocking(True)
        self._socket = connected
        self._process = os.getpid()
        self._held = b""
        self._lock = threading.Lock()
        self._looking = threading.Lock()
        self._poll = select.poll()
        self._poll.register(connected, select.POLLIN)
        self.is_cancelled = False

    def exit_if_forked(self) -> None:
        """Ends a process that a handler forked. Called before any lock is taken: a fork may copy a taken one."""
        exit_if_forked(self._process)

    def receive(self) -> tuple[int, int, Frame]:
        """Wait for the next message: its kind, job and bytes. Raises EOFError once the parent has gone."""
        self.exit_if_forked()
        data = self._held or self._read()
        while len(data) < HEAD.size:
            data += self._read()
        size, kind, _, job = HEAD.unpack_from(data)
        whole = HEAD.size + size
        if len(data) < whole:
            return kind, job, self._read_large(data, whole)
        self._held = data[whole:]
        return kind, job, data[HEAD.size : whole]

    def look(self) -> bool:
        """Whether the parent has cancelled the job that runs. One system call, as long as it has not."""
        if not self.is_cancelled and (self._held or self._poll.poll(0)):  # it may have come together with the job
            with self._looking:
                if self._held or self._poll.poll(0):  # else another thread was faster
                    kind, _, _ = self.receive()  # raises EOFError in the handler: whom it works for is no more
                    assert kind == CANCEL, "a job came while another ran"
                    self.is_cancelled = True
        return self.is_cancelled

    def say(self, kind: int, job: int = 0, payload: Frame = b"", flag: int = 0) -> None:
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
            raise EOFError("the worker has gone")
        return data

    def _read_large(self, data: bytes, whole: int) -> bytearray:
        buffer = bytearray(whole - HEAD.size)
        count = len(data) - HEAD.size
        buffer[:count] = data[HEAD.size :]
        with memoryview(buffer) as view:
            while count < len(buffer):
                received = self._socket.recv_into(view[count:])
                if not received:
                    raise EOFError("the worker has gone")
                count += received
        self._held = b""
        return buffer
