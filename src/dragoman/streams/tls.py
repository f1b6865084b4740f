"""TLS on one connected socket, with the interface of a stream: carriers and connections do not know of it.

An `SSLObject` works on two buffers in memory, between the socket and the carrier. The socket is a `Stream` of its own,
whose carrier decrypts.

`sent` and `backlog` count plain bytes, although the kernel takes encrypted ones. One write to the `SSLObject` is at
most one TLS record, and the remote side can see nothing of a record before its last byte has arrived. So the plain end
and the encrypted end of each record are noted, and `sent` is the plain end of the last record that the kernel has taken
whole. With one note for several records, a message at their beginning would count as never sent although it was seen
(D8).

A carrier may have a plain greeting before TLS (`begins_tls`, NATS): until then bytes pass to it as they are. Nothing is
written in plain: what the owner writes waits until the handshake is done, as always.

Plain bytes are encrypted late, at most `AHEAD` bytes before the kernel takes them: a slow remote side costs no second
copy of its messages, and bytes that were not encrypted have certainly not left. The end of the connection without
close_notify is an ordinary end, because every carrier has lengths.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from dragoman.carriers.carrier import UNBOUNDED, Frame, Messages, Reader, size_of
from dragoman.streams.byte_stream import ByteStream
from dragoman.streams.sockets import has_received_all
from dragoman.streams.stream import JOIN_BYTES, Stream
from dragoman.streams.tls_context import TlsRole
from dragoman.streams.tls_problems import (
    ALERT_OF_WRONG_PROTOCOL,
    BEGINNING_BYTES,
    RESUMED,
    ended_before_greeting,
    ended_in_handshake,
    no_application_protocol,
    tls_problem,
)
from dragoman.streams.turn import Turn

RECORD_BYTES: Final = 16_384  # the most plain bytes in a TLS record
SMALLEST_RECORD_BYTES: Final = 512  # the least that a peer can request for records (RFC 6066, max_fragment_length)
RECORD_HEADER: Final = 5  # type, version, and a length of two bytes
LEAST_OVERHEAD: Final = 16  # bytes that the tag of every allowed cipher adds to a record
AHEAD: Final = 128 << 10  # most encrypted bytes that wait for the kernel
RECORDS_KEPT: Final = 64  # of those that the kernel has taken, for `unread`
UNDECODED: Final = b"\0"  # the `rest` of a decryptor; the bytes are in its carrier, or not decrypted yet


def _ignore(_: object) -> None:
    pass


def _nothing() -> None:
    pass


class _Decryptor(Reader):
    """The carrier of the socket: decrypts, and passes the plain bytes to the carrier of the connection."""

    # fmt: off
    __slots__ = (
        "_carrier", "_incoming", "_read", "_role", "_tls", "beginning", "is_ended", "is_plain", "is_ready", "problem",
        "received",
    )
    # fmt: on

    def __init__(self, carrier: Reader, incoming: ssl.MemoryBIO, tls: ssl.SSLObject, role: TlsRole) -> None:
        self.gap = None
        self.most = UNBOUNDED
        self.rest = b""
        self.beginning = b""  # first bytes of the remote side, which identify another protocol
        self.is_plain = not carrier.begins_tls  # a greeting without TLS is expected
        self.is_ready = False  # the handshake is done
        self.is_ended = False  # the remote side has sent close_notify
        self.problem = ""  # the error that ended TLS
        self.received = 0  # plain bytes
        self._carrier = carrier
        self._incoming = incoming
        self._tls = tls
        self._read: Callable[..., Any] = tls.read  # returns bytes, or a number if it read into a buffer
        self._role = role

    def feed(self, data: bytes) -> Messages:
        if self.is_plain:
            return self._greet(data)
        self.rest = b""
        self._incoming.write(data)
        if not self.is_ready:
            if len(self.beginning) < BEGINNING_BYTES:
                self.beginning += data[:BEGINNING_BYTES]
            if self.problem or not self._shake_hands():
                return []
        messages: Messages = []
        try:
            self._decrypt(messages)
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            self.is_ended = True
        except ssl.SSLError as error:
            self.problem = tls_problem(error, self.beginning, self._role.is_server)
        return messages

    def _greet(self, data: bytes) -> Messages:
        """Pass plain bytes to the carrier until it begins TLS. It accepts no byte after its greeting until then."""
        self.received += len(data)
        messages = self._carrier.feed(data)
        if self._carrier.begins_tls:
            self.is_plain = False
            self._carrier.enter_tls()
            self._shake_hands()
        return messages

    def _shake_hands(self) -> bool:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        except ssl.SSLError as error:
            self.problem = tls_problem(error, self.beginning, self._role.is_server)
            return False
        required = self._role.required_protocol
        if required and self._tls.selected_alpn_protocol() != required:
            self.problem = no_application_protocol(required, self._role.is_server)
            return False
        if self._role.is_server and self._tls.session_reused and self._tls.context.verify_mode != ssl.CERT_NONE:
            self.problem = RESUMED  # only TLS 1.2 by session id, which Python's contexts cannot turn off (R140)
            return False
        self.is_ready = True
        return True

    def _decrypt(self, messages: Messages) -> None:
        """Append the messages of complete records, until there are `most`. Large frames are read directly into their
        own buffers."""
        carrier, tls = self._carrier, self._tls
        has_turns = self.most < UNBOUNDED
        if has_turns and carrier.rest:
            messages += carrier.feed(b"")
            if carrier.rest or len(messages) >= self.most:
                self._note_rest()
                return
        while self._incoming.pending or tls.pending():
            gap = carrier.gap
            if gap is None:
                data: bytes = self._read(RECORD_BYTES)
                count = len(data)
                if count:
                    messages += carrier.feed(data)
            else:
                count = self._read(len(gap), gap)
                if count:
                    messages += carrier.fill(count)
            if not count:
                self.is_ended = True
                return
            self.received += count
            if has_turns and (carrier.rest or len(messages) >= self.most):
                self._note_rest()
                return

    def _note_rest(self) -> None:
        if self._carrier.rest or self._incoming.pending or self._tls.pending():
            self.rest = UNDECODED


class _Socket(Stream):
    """The socket, which carries encrypted bytes."""

    __slots__ = ("progressed",)

    def __init__(
        self, loop: asyncio.AbstractEventLoop, connected: socket.socket, decryptor: _Decryptor, turn: Turn | None
    ) -> None:
        super().__init__(loop, connected, decryptor, turn)
        self.progressed: Callable[[], None] = _nothing  # called when the kernel has taken waiting bytes

    @property
    def is_over(self) -> bool:
        return self._is_over

    def end(self, problem: str) -> None:
        """End the connection because TLS failed; `ended` is called in the next iteration."""
        self._end(problem)

    def has_sent_all(self) -> bool:
        """True if the remote side has received everything."""
        return not self._is_over and not self._pending and has_received_all(self._socket)

    def _writable(self) -> None:
        super()._writable()
        self.progressed()


class TlsStream(ByteStream):
    """A connected socket with TLS and a carrier. The handshake has no time-out of its own: the owner closes it."""

    # fmt: off
    __slots__ = (
        "_arrived", "_decryptor", "_encrypted", "_ended", "_is_closed", "_low", "_offset", "_outgoing",
        "_plain", "_record_bytes", "_records", "_role", "_socket", "_take_encrypted", "_taken", "_tls", "_waiting",
        "_when_low", "_write_plain",
    )
    # fmt: on

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        connected: socket.socket,
        carrier: Reader,
        role: TlsRole,
        turn: Turn | None = None,
    ) -> None:
        self.sent = 0
        self.received = 0
        self.backlog = 0
        self.closed_in_order = False
        incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._take_encrypted: Callable[[], bytes] = self._outgoing.read
        self._role = role
        self._tls = role.context.wrap_bio(incoming, self._outgoing, role.is_server, role.server_name)
        self._write_plain: Callable[[Frame | memoryview], int] = self._tls.write
        self._decryptor = _Decryptor(carrier, incoming, self._tls, role)
        self._socket = _Socket(loop, connected, self._decryptor, turn)
        if turn is not None:
            carrier.most = turn.most
        self._waiting: deque[Frame] = deque()  # plain buffers that are not encrypted yet
        self._offset = 0  # bytes of the first of them that are encrypted already
        self._plain = 0  # plain bytes that are encrypted
        self._encrypted = 0  # encrypted bytes given to the socket
        self._records: deque[tuple[int, int]] = deque()  # (plain end, encrypted end): not taken by the kernel yet
        self._taken: deque[tuple[int, int]] = deque([(0, 0)], RECORDS_KEPT)  # the last ones that the kernel has taken
        self._record_bytes = RECORD_BYTES
        self._is_closed = False
        self._low = -1  # call `_when_low` when so many bytes are left; -1: never
        self._when_low: Callable[[], None] = _nothing

    @property
    def is_ready(self) -> bool:
        return self._decryptor.is_ready

    @property
    def peer_certificate(self) -> bytes | None:
        return self._tls.getpeercert(True) if self._decryptor.is_ready else None

    @property
    def tls_problem(self) -> str:
        """The error of TLS that ended the connection, or an empty string."""
        return self._decryptor.problem

    @property
    def wire_sent(self) -> int:
        return self._socket.sent

    @property
    def wire_received(self) -> int:
        return self._socket.received

    def start(self, arrived: Callable[[Messages], None], ended: Callable[[str], None]) -> None:
        self._arrived = arrived
        self._ended = ended
        self._socket.progressed = self._progressed
        self._socket.start(self._decrypted, self._socket_ended)
        if not self._role.is_server and not self._decryptor.is_plain:
            self._decryptor.feed(b"")  # makes the first bytes of the handshake
            self._encrypt()

    def write(self, buffers: list[Frame]) -> None:
        """Encrypt and write the buffers. Bytes that the kernel does not take now, or that are written before the
        handshake is done, are kept."""
        if self._socket.is_over:  # never sent (D8)
            self.closed_in_order = self._socket.closed_in_order = False
            return
        size = size_of(buffers)
        if not size:
            return
        self.backlog += size
        if size <= JOIN_BYTES:
            self._waiting.append(buffers[0] if len(buffers) == 1 else b"".join(buffers))
        else:
            self._waiting.extend([buffer for buffer in buffers if buffer])
        self._encrypt()

    def when_low(self, mark: int, call: Callable[[], None]) -> None:
        self._low, self._when_low = mark, call

    def pause(self) -> None:
        self._socket.pause()

    def resume(self) -> None:
        self._socket.resume()

    def read_dry(self) -> bool:
        is_open = self._socket.read_dry()
        self.closed_in_order = self._socket.closed_in_order and not self.backlog
        return is_open

    @property
    def is_queued(self) -> bool:
        return self._socket.is_queued

    def unread(self) -> int:
        """Plain bytes of the last records whose end the remote side did not read."""
        unread = self._socket.unread()
        if not unread:
            return 0
        read = self._socket.sent - unread
        for plain_end, encrypted_end in reversed(self._taken):
            if encrypted_end <= read:
                return self.sent - plain_end
        return self.sent - self._taken[0][0]  # older records may have been read

    def finish(self) -> None:
        self._send_close_notify()
        self._socket.finish()

    def close(self) -> None:
        """Send close_notify, without waiting for the other one, and close the connection. Bytes that the kernel has
        taken are still sent; other bytes are dropped."""
        if self._is_closed:
            return
        self._is_closed = True
        self._send_close_notify()
        self._waiting.clear()
        self._arrived = self._ended = _ignore  # breaks the reference cycle with the owner
        self._socket.progressed = _nothing
        self._socket.close()

    def _send_close_notify(self) -> None:
        if self._decryptor.is_ready and not self._socket.is_over:
            try:
                self._tls.unwrap()
            except ssl.SSLError:  # the other side's close_notify has not arrived
                pass
            self._write_protocol_bytes()

    def _decrypted(self, messages: Messages) -> None:
        """Bytes were read. What TLS itself has to send, such as an alert or a new key, is written first."""
        decryptor = self._decryptor
        self.received = decryptor.received
        self._encrypt()
        self._arrived(messages)
        if decryptor.problem:
            if self._role.is_server and not self._socket.sent:  # a wrong protocol, to which OpenSSL sends nothing
                self._socket.write([ALERT_OF_WRONG_PROTOCOL])
            self._socket.end(decryptor.problem)
        elif decryptor.is_ended and not self._socket.is_over:
            is_in_order = self._socket.has_sent_all()  # before the answer, which has not been received yet
            self._send_close_notify()
            self._socket.closed_in_order = is_in_order
            self._socket.end("the peer closed the connection")

    def _socket_ended(self, problem: str) -> None:
        self.closed_in_order = self._socket.closed_in_order and not self.backlog
        decryptor = self._decryptor
        if decryptor.is_plain:
            problem = problem if decryptor.received else ended_before_greeting(problem)
        elif not decryptor.is_ready and not decryptor.problem:
            problem = ended_in_handshake(problem, decryptor.beginning, self._role.is_server)
        self._ended(problem)

    def _progressed(self) -> None:
        """The kernel has taken bytes that waited."""
        self._count_sent()
        if self._waiting:
            self._encrypt()
        if self.backlog <= self._low:
            self._low = -1
            self._when_low()

    def _write_protocol_bytes(self) -> None:
        if self._outgoing.pending:
            data = self._outgoing.read()
            self._encrypted += len(data)
            self._socket.write([data])

    def _encrypt(self) -> None:
        """Encrypt waiting bytes and write them, until the kernel takes no more."""
        if not self._decryptor.is_ready:
            self._write_protocol_bytes()
            return
        connected = self._socket
        while True:
            buffers: list[Frame] = []
            size = connected.backlog
            if self._outgoing.pending:
                buffers.append(self._outgoing.read())
                self._encrypted += len(buffers[0])
            while self._waiting and size < AHEAD:
                try:
                    record = self._encrypt_record()
                except ssl.SSLError as error:
                    connected.end(tls_problem(error, self._decryptor.beginning, self._role.is_server))
                    return
                buffers.append(record)
                size += len(record)
            if buffers:
                connected.write(buffers)
                self._count_sent()
            if not self._waiting or connected.backlog or connected.is_over:
                return

    def _encrypt_record(self) -> bytes:
        plain = self._next_plain()
        size = self._write_plain(plain)
        self._drop_waiting(size)
        record = self._take_encrypted()
        seen_from = len(record)
        if RECORD_HEADER + (record[3] << 8 | record[4]) != seen_from:
            seen_from = self._first_visible(record, size)
        self._plain += size
        self._records.append((self._plain, self._encrypted + seen_from))
        self._encrypted += len(record)
        return record

    def _next_plain(self) -> Frame | memoryview:
        """Return the next bytes to encrypt, at most one record."""
        waiting, start, room = self._waiting, self._offset, self._record_bytes
        first = waiting[0]
        if len(waiting) == 1 or len(first) - start >= room:
            return first if not start and len(first) <= room else memoryview(first)[start : start + room]
        pieces: list[Frame | memoryview] = []
        for buffer in waiting:
            piece = buffer if not start and len(buffer) <= room else memoryview(buffer)[start : start + room]
            pieces.append(piece)
            room -= len(piece)
            start = 0
            if not room:
                break
        return b"".join(pieces)

    def _drop_waiting(self, count: int) -> None:
        waiting = self._waiting
        count += self._offset
        while waiting and count >= len(waiting[0]):
            count -= len(waiting.popleft())
        self._offset = count

    def _first_visible(self, records: bytes, size: int) -> int:
        """Return the place in these records from which on the remote side can see some of the `size` plain bytes.

        There are two reasons for several records. Either the first ones belong to TLS (the answer to a new key), and
        the last one has all plain bytes. Or the remote side has requested shorter records: then the first one counts,
        and from now on each write fits into the shortest.
        """
        first_end = 0
        start = end = 0
        while end < len(records):
            start = end
            end += RECORD_HEADER + (records[start + 3] << 8 | records[start + 4])
            first_end = first_end or end
        if end - start - RECORD_HEADER >= size + LEAST_OVERHEAD:
            return end
        self._record_bytes = SMALLEST_RECORD_BYTES
        return first_end

    def _count_sent(self) -> None:
        records, encrypted_sent = self._records, self._socket.sent
        while records and records[0][1] <= encrypted_sent:
            record = records.popleft()
            self._taken.append(record)
            self.backlog -= record[0] - self.sent
            self.sent = record[0]
