"""A connection of a command to NATS, with asyncio: opened, used for requests, closed. It does not reconnect.

A broker uses `cluster/nats_side.py` instead.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from dragoman.carriers.carrier import Frame, Messages
from dragoman.carriers.nats import Nats
from dragoman.carriers.nats_connect import ConnectOptions
from dragoman.carriers.nats_lines import DEFAULT_LIMITS, NatsLimits
from dragoman.cluster.direct_batch import DirectBatch
from dragoman.cluster.jetstream import ApiRequest, direct_batch
from dragoman.cluster.nats_address import NatsAddress, NatsPlace
from dragoman.cluster.nats_client import NatsClient, NatsWatcher
from dragoman.cluster.nats_side import check_secrecy
from dragoman.cluster.requests import Answer
from dragoman.sdk.address import TcpAddress, TlsAddress
from dragoman.streams.byte_stream import ByteStream
from dragoman.streams.dial import connect, look_up
from dragoman.streams.stream import Stream
from dragoman.streams.tls import TlsStream
from dragoman.streams.tls_context import TlsFileError, client_role


class NatsUnavailable(Exception):
    """No server could be connected to. The message says why, for each of them."""


class Denied(Exception):
    """The user lacks a permission. The message has the words of the server."""


class Denials(NatsWatcher):
    """Notes that a permission is missing: the server answers nothing else to the request."""

    def __init__(self) -> None:
        self.denied: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def error(self, text: str, now: float) -> None:
        if "permissions violation" in text.lower() and not self.denied.done():
            self.denied.set_result(text)


class NatsConnection:
    """An open connection. Made by `open_nats`."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        place: NatsPlace,
        carrier: Nats,
        client: NatsClient,
        denied: asyncio.Future[str],
    ) -> None:
        """`denied`: gets the server's sentence about a missing permission."""
        self.place = place
        self.client = client
        self.opened: asyncio.Future[None] = loop.create_future()
        self.closed: asyncio.Future[str] = loop.create_future()  # the reason
        self.denied = denied
        self._loop = loop
        self._carrier = carrier
        self._stream: ByteStream | None = None
        self._unsent: list[Frame] = []
        self._timer: asyncio.TimerHandle | None = None

    def start(self, stream: ByteStream) -> None:
        self._stream = stream
        stream.start(self._arrived, self._ended)

    def close(self, reason: str = "it was closed") -> None:
        """Write what is pending, and close."""
        if self._stream is None:
            return
        self._flush_writes()
        stream, self._stream = self._stream, None
        stream.close()
        if self._timer is not None:
            self._timer.cancel()
        if not self.opened.done():
            self.opened.set_exception(NatsUnavailable(f"{self.place}: {reason}"))
        self.client.lost(reason, self._loop.time())
        if not self.closed.done():
            self.closed.set_result(reason)

    async def request(self, asked: ApiRequest, timeout: float) -> Answer:
        """Send a request. Returns its answer; a time-out is one, too. Raises Denied if a permission is missing."""
        done: asyncio.Future[Answer] = self._loop.create_future()

        def answered(answer: Answer, now: float) -> bool:
            if not done.done():
                done.set_result(answer)
            return False

        self.client.request(asked.subject, asked.payload, asked.headers, answered, timeout, self._loop.time())
        self.set_timer()
        either: set[asyncio.Future[Any]] = {done, self.denied}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not done.done():
            raise Denied(
                f"NATS denies it: {self.denied.result()}; docs/cluster.md lists the permissions that are needed"
            )
        return done.result()

    async def batch(self, stream: str, first: int, count: int, timeout: float, max_bytes: int = 0) -> DirectBatch:
        """Read messages of a stream. The time-out is that of each reply."""
        batch = DirectBatch(stream)
        done: asyncio.Future[None] = self._loop.create_future()

        def answered(answer: Answer, now: float) -> bool:
            is_more = batch.receive(answer, now)
            if not is_more and not done.done():
                done.set_result(None)
            return is_more

        asked = direct_batch(stream, first, count, max_bytes)
        self.client.request(asked.subject, asked.payload, asked.headers, answered, timeout, self._loop.time())
        self.set_timer()
        await done
        return batch

    async def flush(self) -> bool:
        """Wait until the server has processed everything before. False: the connection has ended."""
        done: asyncio.Future[bool] = self._loop.create_future()
        self.client.flush(lambda is_done, now: done.set_result(is_done), self._loop.time())
        return await done

    def send(self, frames: Sequence[Frame]) -> None:
        """Send a message or a line of control, together with all others of this iteration of the loop."""
        if not self._unsent:
            self._loop.call_soon(self._flush_writes)
        self._unsent += self._carrier.encode(frames)

    def _flush_writes(self) -> None:
        if self._unsent and self._stream is not None:
            unsent, self._unsent = self._unsent, []
            self._stream.write(unsent)

    def _arrived(self, messages: Messages) -> None:
        carrier, stream = self._carrier, self._stream
        if carrier.outgoing and stream is not None:
            self._flush_writes()
            outgoing, carrier.outgoing = carrier.outgoing, []
            stream.write(list(outgoing))
        now = self._loop.time()
        if carrier.ready and not self.opened.done():
            self.opened.set_result(None)
            self.client.opened(carrier, self.send, now)
        for message in messages:
            self.client.receive(message, now)
        if carrier.failure is not None:
            self.close(carrier.failure.detail)

    def _ended(self, problem: str) -> None:
        self.close(problem)

    def set_timer(self) -> None:
        """Wake when the next request times out. Call it after requests that were made through `client`."""
        if self._timer is not None:
            self._timer.cancel()
        due = self.client.tick(self._loop.time())
        self._timer = self._loop.call_at(due, self.set_timer) if due < float("inf") else None


async def open_nats(
    address: NatsAddress,
    options: ConnectOptions,
    inbox: bytes,
    timeout: float,
    watcher: NatsWatcher | None = None,
    limits: NatsLimits = DEFAULT_LIMITS,
) -> NatsConnection:
    """Connect to the first server that admits us. Raises NatsUnavailable, and ValueError if a secret would be sent in
    plain."""
    check_secrecy(address, options)
    problems: list[str] = []
    for place in address.places:
        carrier = Nats(options, encryption=address.encryption, limits=limits)
        denials = Denials()
        try:
            return await _open(place, carrier, NatsClient(inbox, watcher or denials), timeout, denials.denied)
        except (OSError, TlsFileError) as error:
            problems.append(f"{place}: {error.strerror if isinstance(error, OSError) and error.strerror else error}")
        except NatsUnavailable as error:
            problems.append(str(error))
    raise NatsUnavailable(f"no NATS server admits this program: {'; '.join(problems)}")


async def _open(
    place: NatsPlace, carrier: Nats, client: NatsClient, timeout: float, denied: asyncio.Future[str]
) -> NatsConnection:
    loop = asyncio.get_running_loop()
    role = client_role(place.tls, place.host) if isinstance(place, TlsAddress) else None
    where = TcpAddress(await look_up(loop, place.host, timeout), place.port)
    connected = await connect(loop, where, timeout)
    stream: ByteStream
    stream = Stream(loop, connected, carrier) if role is None else TlsStream(loop, connected, carrier, role)
    made = NatsConnection(loop, place, carrier, client, denied)
    made.start(stream)
    try:
        async with asyncio.timeout(timeout):
            await made.opened
    except TimeoutError:
        made.close()
        hint = "the server may expect TLS first (tls_first=true)" if role is not None else "it may be no NATS server"
        raise NatsUnavailable(f"{place}: no handshake within {timeout:g} s; {hint}") from None
    except BaseException:
        made.close()
        raise
    return made
