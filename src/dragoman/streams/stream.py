"""One connected socket: reads for its carrier, and writes the buffers of one iteration.

The socket is read and written directly, without an asyncio transport. The CPU cost is the same, and two facts are known
that a transport hides: the number of bytes the kernel has taken (a job that was never sent goes to another worker, D8),
and when all arrived bytes have been read (before a lease ends, D13).

A read is one call: a second one per message would find nothing and cost several per cent of the CPU of a job. asyncio's
loop reports a readable socket repeatedly. uvloop does not after a reset: libuv stops polling a socket with an error
after one last callback. If bytes came before the reset, that callback returns them and the end is not seen. So a socket
is read again within a second (`streams/second_look.py`).

A stream of the broker takes turns (`streams/turn.py`): it is not read while a turn is over, or while undecoded bytes of
its last read wait. Those count as not read yet, so the end of the connection comes after them.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Final

from dragoman.carriers.carrier import Frame, Messages, Reader, size_of
from dragoman.streams.byte_stream import ByteStream
from dragoman.streams.second_look import SecondLook, second_look_of
from dragoman.streams.sockets import has_received_all
from dragoman.streams.turn import Turn
from dragoman.streams.unread import unread_bytes

READ_BYTES: Final = 1 << 16  # a larger buffer would need a new memory mapping for every read
JOIN_BYTES: Final = 1 << 16  # up to this size, one joined copy is cheaper than a gathered write
MAX_BUFFERS: Final = 512  # below the kernel's limit for one gathered write
GATHERS: Final[bool] = hasattr(socket.socket, "sendmsg")  # Windows has no gathered writes
NOTHING_PENDING: Final[deque[Frame | memoryview]] = deque()  # shared by streams that never had to wait: 760 bytes less


def _ignore(_: object) -> None:
    pass


def _nothing() -> None:
    pass


def first_bytes(buffers: Iterable[Frame | memoryview]) -> Frame | memoryview:
    """Return the first of these buffers that is not empty, or as many of them as have JOIN_BYTES together, joined."""
    first: list[Frame | memoryview] = []
    size = 0
    for each in buffers:
        if size + len(each) > JOIN_BYTES:
            if not size:
                return each
            break
        first.append(each)
        size += len(each)
    return b"".join(first)


class Stream(ByteStream):
    """A connected socket with its carrier. Calls `arrived` with messages, and `ended` once with the reason."""

    # fmt: off
    __slots__ = (
        "_arrived", "_carrier", "_ended", "_error", "_is_closed", "_is_over", "_is_paused", "_is_to_be_read_again",
        "_is_waiting", "_loop", "_low", "_pending", "_problem", "_recv", "_second_look", "_send", "_socket", "_turn",
        "_waits_for_turn", "_when_low",
    )
    # fmt: on

    def __init__(
        self, loop: asyncio.AbstractEventLoop, connected: socket.socket, carrier: Reader, turn: Turn | None = None
    ) -> None:
        """`turn`: None for a stream that is read whenever it is readable."""
        self.sent = 0
        self.received = 0
        self.backlog = 0
        self.closed_in_order = False
        self._loop = loop
        self._socket = connected
        self._recv = connected.recv
        self._send = connected.send
        self._carrier = carrier
        self._pending = NOTHING_PENDING  # buffers that the kernel has not taken yet
        self._is_waiting = False  # for the socket to become writable
        self._is_paused = False  # nothing is read
        self._low = -1  # call `_when_low` when so many bytes are left; -1: never
        self._when_low: Callable[[], None] = _nothing
        self._error = 0  # errno of the error that broke the connection
        self._is_closed = False
        self._second_look: SecondLook = second_look_of(loop)
        self._is_to_be_read_again = False
        self._is_over = False  # closed, or its end was seen and `ended` is called after this iteration
        self._problem = ""  # the reason of its end, while undecoded bytes wait
        self._turn = turn
        self._waits_for_turn = False  # in a queue of `turn`
        if turn is not None:
            carrier.most = turn.most

    def start(self, arrived: Callable[[Messages], None], ended: Callable[[str], None]) -> None:
        self._arrived = arrived
        self._ended = ended
        self._loop.add_reader(self._socket, self._readable)

    def write(self, buffers: list[Frame]) -> None:
        """Write the buffers. Bytes that the kernel does not take now are kept and written when it can take them."""
        if self._is_over:  # never sent (D8)
            self.closed_in_order = False
            return
        if self._pending:
            self._pending.extend(buffers)
            self.backlog += size_of(buffers)
            return
        try:
            if len(buffers) == 1:
                [buffer] = buffers
                size = len(buffer)
                taken = self._send(buffer)
            elif (size := size_of(buffers)) <= JOIN_BYTES:
                taken = self._send(b"".join(buffers))
            elif GATHERS:
                taken = self._socket.sendmsg(buffers[:MAX_BUFFERS])
            else:
                taken = self._send(first_bytes(buffers))
        except BlockingIOError:
            size, taken = 1, 0
        except OSError as error:
            self._break(error)
            return
        self.sent += taken
        if taken < size:
            self._keep(buffers, taken)

    def when_low(self, mark: int, call: Callable[[], None]) -> None:
        self._low, self._when_low = mark, call

    def pause(self) -> None:
        if not self._is_paused and not self._is_over:
            self._is_paused = True
            self._loop.remove_reader(self._socket)

    def resume(self) -> None:
        if self._is_paused:
            self._is_paused = False
            if not self._is_over:
                self._loop.add_reader(self._socket, self._readable)

    def read_dry(self) -> bool:
        """Read until nothing is left or undecoded bytes wait, at most 64 times. Returns whether the connection is
        still open."""
        for _ in range(64):
            if self._is_closed or not self._readable(is_in_turn=False):
                break
        return not self._is_over

    def take_turn(self) -> None:
        self._waits_for_turn = False
        if self._is_closed:
            return
        if self._carrier.rest:
            self._arrived(self._carrier.feed(b""))
            self._queue_rest()
        else:
            self._readable()

    def unread(self) -> int:
        return unread_bytes(self._socket, self._error) if self._is_over and not self._is_closed else 0

    @property
    def is_queued(self) -> bool:
        return self._waits_for_turn

    def read_again(self) -> None:
        """Read bytes that the event loop may not report: once per iteration, to be fair to other connections."""
        if self._readable():
            self._loop.call_soon(self.read_again)
        elif self._waits_for_turn:
            self._second_look.add(self._loop, self.read_again)
        else:
            self._is_to_be_read_again = False

    def finish(self) -> None:
        """Shut down writing, and continue to read. Call it when nothing is left to write."""
        if not self._is_over:
            try:
                self._socket.shutdown(socket.SHUT_WR)
            except OSError as error:
                self._break(error)

    def close(self) -> None:
        """Close the connection. Bytes that the kernel has taken are still sent; other bytes are dropped."""
        if self._is_closed:
            return
        self._is_closed = self._is_over = True
        self._loop.remove_reader(self._socket)
        if self._is_waiting:
            self._loop.remove_writer(self._socket)
        self._pending.clear()
        self._arrived = self._ended = _ignore  # breaks the reference cycle with the owner
        self._drain_and_close()

    def _drain_and_close(self) -> None:
        """Read unread bytes before closing: otherwise closing resets the connection and discards the last response."""
        try:
            self._socket.shutdown(socket.SHUT_WR)
            for _ in range(16):
                if not self._socket.recv(READ_BYTES):
                    break
        except OSError:
            pass
        self._socket.close()

    def _readable(self, is_in_turn: bool = True) -> bool:
        if self._is_over or self._is_paused:
            return False
        turn = self._turn
        if turn is not None and (turn.is_over or self._waits_for_turn) and self._must_wait(turn, is_in_turn):
            return False
        carrier = self._carrier
        gap = carrier.gap
        try:
            received = self._recv(READ_BYTES) if gap is None else self._socket.recv_into(gap)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError as error:
            self._break(error)
            return False
        if not received:
            self.closed_in_order = not self._pending and has_received_all(self._socket)
            self._end("the peer closed the connection")
            return False
        if not self._is_to_be_read_again:
            self._is_to_be_read_again = True
            self._second_look.add(self._loop, self.read_again)
        if isinstance(received, int):
            self.received += received
            self._arrived(carrier.fill(received))
        else:
            self.received += len(received)
            self._arrived(carrier.feed(received))
        if turn is not None and carrier.rest:
            self._queue_rest()
        return True

    def _must_wait(self, turn: Turn, is_in_turn: bool) -> bool:
        """True if it may not be read now. It is in a queue then."""
        if self._waits_for_turn and self._carrier.rest:
            return True
        if is_in_turn and not self._waits_for_turn:
            self._waits_for_turn = True
            turn.unread.append(self)
        return is_in_turn

    def _queue_rest(self) -> None:
        """Queue it while undecoded bytes wait. After the last of them its end follows, if that has been seen."""
        if self._carrier.rest and self._turn is not None:
            if not self._waits_for_turn:
                self._waits_for_turn = True
                self._turn.behind.append(self)
        elif self._problem:
            self._loop.call_soon(self._ended, self._problem)
            self._problem = ""

    def _keep(self, buffers: list[Frame], taken: int) -> None:
        if self._pending is NOTHING_PENDING:
            self._pending = deque()
        for buffer in buffers:
            if taken >= len(buffer):
                taken -= len(buffer)
                continue
            self._pending.append(memoryview(buffer)[taken:] if taken else buffer)
            self.backlog += len(buffer) - taken
            taken = 0
        self._is_waiting = True
        self._loop.add_writer(self._socket, self._writable)

    def _writable(self) -> None:
        if self._is_closed:
            return
        try:
            if GATHERS:
                taken = self._socket.sendmsg(islice(self._pending, MAX_BUFFERS))
            else:
                taken = self._send(first_bytes(self._pending))
        except BlockingIOError:
            return
        except OSError as error:
            self._break(error)
            return
        self.sent += taken
        self.backlog -= taken
        pending = self._pending
        while taken:
            if taken >= len(pending[0]):
                taken -= len(pending.popleft())
            else:
                pending[0] = memoryview(pending[0])[taken:]
                taken = 0
        while pending and not len(pending[0]):
            pending.popleft()
        if not pending:
            self._is_waiting = False
            self._loop.remove_writer(self._socket)
        if self.backlog <= self._low:
            self._low = -1
            self._when_low()

    def _break(self, error: OSError) -> None:
        self._error = error.errno or -1
        self._end(f"the connection broke: {error.strerror or error}")

    def _end(self, problem: str) -> None:
        """Mark the stream as ended, and call `ended` in the next iteration: the caller may be in a write."""
        if not self._is_over:
            self._is_over = True
            self._loop.remove_reader(self._socket)
            if self._is_waiting:
                self._loop.remove_writer(self._socket)
                self._is_waiting = False
            if self._turn is not None and self._carrier.rest:
                self._problem = problem
            else:
                self._loop.call_soon(self._ended, problem)
