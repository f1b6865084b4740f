"""Outgoing connections of clients and workers: a socket with a carrier."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence

from dragoman.carriers.carrier import Carrier, Frame, Message, Messages, TooLarge
from dragoman.sdk.address import SocketAddress, TlsAddress, UnixAddress, is_loopback
from dragoman.sdk.errors import BrokerUnavailable, NotAllowed, WrongDialect
from dragoman.streams.byte_stream import ByteStream
from dragoman.streams.dial import connect
from dragoman.streams.stream import Stream
from dragoman.streams.tls import TlsStream
from dragoman.streams.tls_context import TlsFileError, client_role
from dragoman.streams.tls_problems import REFUSED_BY_BROKER


def _nothing() -> None:
    pass


def _this_user() -> str:
    return f"this program (uid {os.geteuid()})" if hasattr(os, "geteuid") else "this program"


class Ungreeted(BrokerUnavailable):
    """The port accepts connections, but the carrier's handshake failed."""

    def __init__(self, sentence: str, carrier: Carrier | None = None, *, is_silent_tls: bool = False) -> None:
        super().__init__(sentence)
        self.carrier = carrier  # of a connection that failed or was closed; None after a time-out
        self.is_silent_tls = is_silent_tls  # the broker closed it after the TLS handshake, without a byte


def handshake_problem(place: SocketAddress, problem: str, *, is_silent: bool = False) -> str:
    """Return the message for a connection that ended during a handshake. The port may be another program's, or that of
    a broker that rejects the connection; the broker logs that. `is_silent`: no byte has come."""
    advice = "check the broker's host and port, and its log"
    if is_silent and is_loopback(place):  # a broker closes connections of other users so (T22)
        advice += (
            f". A broker that runs as another user than {_this_user()} admits it only with "
            "loopback=anyone in the listener's URL, or by `dragoman access allow`"
        )
    return f"no broker answers at {place}: {problem} before the handshake was complete; {advice}"


def _unreachable(place: SocketAddress, error: OSError) -> BrokerUnavailable:
    if isinstance(error, PermissionError) and isinstance(place, UnixAddress):
        return BrokerUnavailable(
            f"cannot connect to {place}: this user (uid {os.geteuid()}) may not open the socket; run this program as "
            "the user of the broker, or open the socket to a group in the listener's URL: mode=0660&group=NAME"
        )
    problem = "connection refused" if isinstance(error, ConnectionRefusedError) else error.strerror or str(error)
    return BrokerUnavailable(f"no broker answers at {place}: {problem or 'timed out'}")


class OutgoingConnection:
    """An open connection, created by `open_connection`. It ends with `close`, or when `ended` is called.

    Messages sent within one iteration of the loop are written together, at its end or by `flush`.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, stream: ByteStream, carrier: Carrier) -> None:
        self._loop = loop
        self._stream = stream
        self._encode = carrier.encode
        self._unsent: list[Frame] = []

    @property
    def backlog(self) -> int:
        """Bytes that the kernel has not accepted yet; `close` would drop them."""
        self.flush()
        return self._stream.backlog

    def send(self, frames: Sequence[Frame]) -> None:
        if not self._unsent:
            self._loop.call_soon(self.flush)
        self._unsent += self._encode(frames)

    def flush(self) -> None:
        if self._unsent:
            unsent, self._unsent = self._unsent, []
            self._stream.write(unsent)

    def finish(self) -> None:
        """Close the sending direction; messages are still received until the remote side closes, too."""
        self.flush()
        self._stream.finish()

    def close(self) -> None:
        self.flush()
        self._stream.close()


async def open_connection(
    place: SocketAddress,
    carrier: Carrier,
    received: Callable[[Message | TooLarge], None],
    ended: Callable[[str], None],
    timeout: float,
    batch_done: Callable[[], None] = _nothing,
) -> OutgoingConnection:
    """Connect and complete the handshakes of TLS and of the carrier. `batch_done` is called after all messages of one
    read were passed to `received`. Raises BrokerUnavailable."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout
    try:
        role = client_role(place.tls, place.host) if isinstance(place, TlsAddress) else None
        connected = await connect(loop, place, timeout)
    except TlsFileError as error:
        raise BrokerUnavailable(f"cannot connect to {place}: {error}") from None
    except OSError as error:
        raise _unreachable(place, error) from (None if isinstance(error, PermissionError) else error)
    ready: asyncio.Future[None] = loop.create_future()
    stream: ByteStream
    stream = Stream(loop, connected, carrier) if role is None else TlsStream(loop, connected, carrier, role)
    link = OutgoingConnection(loop, stream, carrier)

    def arrived(messages: Messages) -> None:
        if carrier.outgoing:
            link.flush()  # encoded before; with CURVE, bytes must be written in the order in which they were encoded
            outgoing, carrier.outgoing = carrier.outgoing, []
            stream.write(list(outgoing))
        if carrier.failure is not None:
            end(f"{place} does not speak the expected protocol: {carrier.failure.detail}")
            return
        if carrier.ready and stream.is_ready and not ready.done():
            ready.set_result(None)
        for message in messages:
            received(message)
        if messages:
            batch_done()

    def closed(problem: str) -> None:
        is_explained = ready.done() or isinstance(stream, TlsStream)  # `_failed_handshake` explains errors of TLS
        end(problem if is_explained else handshake_problem(place, problem, is_silent=not stream.received))

    def end(problem: str) -> None:
        stream.close()
        if not ready.done():
            ready.set_exception(_failed_handshake(stream, carrier, place, problem))
        else:
            ended(problem)

    stream.write(list(carrier.outgoing))
    carrier.outgoing = []
    stream.start(arrived, closed)
    try:
        async with asyncio.timeout_at(deadline):
            await ready
    except TimeoutError:
        stream.close()
        missing = "greeting" if stream.is_ready else "TLS handshake"
        raise Ungreeted(f"{place} accepted the connection but sent no {missing} within {timeout:g} s") from None
    except asyncio.CancelledError:
        stream.close()
        raise
    return link


def _failed_handshake(stream: ByteStream, carrier: Carrier, place: SocketAddress, problem: str) -> BrokerUnavailable:
    """Return the error about a connection that ended before it was ready."""
    if not isinstance(stream, TlsStream):
        return Ungreeted(problem, carrier)
    if not stream.tls_problem and stream.is_ready:
        hint = "it may require another certificate (cert= and key=), or speak another dialect"
        is_silent = not stream.received and carrier.failure is None
        return Ungreeted(f"{place}: {problem} after the TLS handshake: {hint}", carrier, is_silent_tls=is_silent)
    if not stream.tls_problem:
        return Ungreeted(f"{place}: {problem}")
    kind = NotAllowed if problem.startswith(REFUSED_BY_BROKER) else WrongDialect
    return kind(f"{place}: {problem}")
