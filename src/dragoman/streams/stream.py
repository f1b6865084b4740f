"""One connected socket: reads for its carrier, writes what one turn gathered.

We read and write the socket ourselves when the loop says it is ready, instead of through an asyncio transport. It costs
the same CPU, and we know what a transport hides: how many bytes the kernel has really taken (so that a job which never
left can go to another worker, D8), and how to read a socket dry before judging anybody late (D13).

A read takes what one call returns and does not ask for more: a second call for every message would find nothing and
cost several per cent of the CPU of a job. That is enough with a loop that reports a readable socket again and again, as
asyncio's does. uvloop's does not after a reset: libuv stops polling a socket with an error, and the reader is called
one last time. If bytes came before the reset, that call returns them, and the end stays unseen. So a socket that was
read is read again within a second (`streams/second_look.py`), until nothing is left or the end is found.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Callable
from itertools import islice
from typing import Final

from dragoman.carriers.carrier import Frame, Messages, Reader, size_of
from dragoman.streams.byte_stream import ByteStream
from dragoman.streams.second_look import SecondLook, second_look_of
from dragoman.streams.sockets import has_received_all
from dragoman.streams.unread import unread_bytes

READ_BYTES: Final = 1 << 16  # more would be a fresh memory mapping for every read
JOIN_BYTES: Final = 1 << 16  # what is cheaper to copy together than to write in pieces
MAX_BUFFERS: Final = 512  # well under the kernel's limit for one gathered write


def _nobody(_: object) -> None:
    pass


class Stream(ByteStream):
    # fmt: off
    __slots__ = (
        "_arrived", "_carrier", "_ended", "_error", "_is_closed", "_is_over", "_is_to_be_read_again", "_is_waiting",
        "_loop", "_pending", "_recv", "_second_look", "_send", "_socket",
    )
    # fmt: on

    def __init__(self, loop: asyncio.AbstractEventLoop, connected: socket.socket, carrier: Reader) -> None:
        self.sent = 0
        self.received = 0
        self.backlog = 0
        self.closed_in_order = False
        self._loop = loop
        self._socket = connected
        self._recv = connected.recv
        self._send = connected.send
        self._carrier = carrier
        self._pending: deque[Frame | memoryview] = deque()  # what the kernel would not take yet
        self._is_waiting = False  # for the socket to become writable
        self._error = 0  # what broke the connection
        self._is_closed = False
        self._second_look: SecondLook = second_look_of(loop)
        self._is_to_be_read_again = False
        self._is_over = False  # it is closed, or its end has been seen and will be told after this turn

    def start(self, arrived: Callable[[Messages], None], ended: Callable[[str], None]) -> None:
        self._arrived = arrived
        self._ended = ended
        self._loop.add_reader(self._socket, self._readable)

    def write(self, buffers: list[Frame]) -> None:
        """Hand the buffers to the kernel; what it does not take now is kept and follows by itself."""
        if self._is_over:  # nobody will read it, and so it never left us (D8)
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
            else:
                taken = self._socket.sendmsg(buffers[:MAX_BUFFERS])
        except BlockingIOError:
            size, taken = 1, 0
        except OSError as error:
            self._break(error)
            return
        self.sent += taken
        if taken < size:
            self._keep(buffers, taken)

    def read_dry(self) -> bool:
        """Take in all that has arrived, as long as more keeps coming at once. Tells whether the end has not come."""
        for _ in range(64):
            if self._is_closed or not self._readable():
                break
        return not self._is_over

    def unread(self) -> int:
        """How many bytes, of the last that left us, the peer cannot have read. To be asked before `close`."""
        return unread_bytes(self._socket, self._error) if self._is_over and not self._is_closed else 0

    def read_again(self) -> None:
        """Read what the event loop may not report any more: once in each pass of the loop, to be fair to others."""
        if self._readable():
            self._loop.call_soon(self.read_again)
        else:
            self._is_to_be_read_again = False

    def finish(self) -> None:
        """Say that nothing more comes from here, and go on reading. To be called when nothing waits to be written."""
        if not self._is_over:
            try:
                self._socket.shutdown(socket.SHUT_WR)
            except OSError as error:
                self._break(error)

    def close(self) -> None:
        """End the connection. What the kernel has taken still goes out; what it has not is dropped."""
        if self._is_closed:
            return
        self._is_closed = self._is_over = True
        self._loop.remove_reader(self._socket)
        if self._is_waiting:
            self._loop.remove_writer(self._socket)
        self._pending.clear()
        self._arrived = self._ended = _nobody  # whoever listened also holds us: let go, or only the collector would
        self._hang_up()

    def _hang_up(self) -> None:
        """Closing with unread bytes would reset the connection and take our last words with it, so read them off."""
        try:
            self._socket.shutdown(socket.SHUT_WR)
            for _ in range(16):
                if not self._socket.recv(READ_BYTES):
                    break
        except OSError:
            pass
        self._socket.close()

    def _readable(self) -> bool:
        if self._is_over:
            return False
        carrier = self._carrier
        gap = carrier.gap
        try:
            came = self._recv(READ_BYTES) if gap is None else self._socket.recv_into(gap)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError as error:
            self._break(error)
            return False
        if not came:
            self.closed_in_order = not self._pending and has_received_all(self._socket)
            self._end("the peer closed the connection")
            return False
        if not self._is_to_be_read_again:
            self._is_to_be_read_again = True
            self._second_look.add(self._loop, self.read_again)
        if isinstance(came, int):
            self.received += came
            self._arrived(carrier.fill(came))
        else:
            self.received += len(came)
            self._arrived(carrier.feed(came))
        return True

    def _keep(self, buffers: list[Frame], taken: int) -> None:
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
            taken = self._socket.sendmsg(islice(self._pending, MAX_BUFFERS))
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

    def _break(self, error: OSError) -> None:
        self._error = error.errno or -1
        self._end(f"the connection broke: {error.strerror or error}")

    def _end(self, problem: str) -> None:
        """Say so after this turn: whoever is writing now is in the middle of something."""
        if not self._is_over:
            self._is_over = True
            self._loop.remove_reader(self._socket)
            if self._is_waiting:
                self._loop.remove_writer(self._socket)
                self._is_waiting = False
            self._loop.call_soon(self._ended, problem)
