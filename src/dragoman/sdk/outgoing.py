"""One outgoing connection that speaks a carrier: what clients and workers stand on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from dragoman.carriers.carrier import Carrier, Frame, Message, Messages, TooLarge
from dragoman.sdk.address import SocketAddress
from dragoman.sdk.errors import BrokerUnavailable
from dragoman.streams.dial import connect
from dragoman.streams.stream import Stream


def _nothing() -> None:
    pass


class Ungreeted(BrokerUnavailable):
    """Somebody listens there, and does not greet as a broker of this dialect does."""


class OutgoingConnection:
    """Made by `open_link`; it lives until `close` or until `ended` is called.

    What is sent within one turn of the loop leaves together, at its end or at `flush`.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, stream: Stream, carrier: Carrier) -> None:
        self._loop = loop
        self._stream = stream
        self._encode = carrier.encode
        self._gathered: list[Frame] = []

    @property
    def backlog(self) -> int:
        """Bytes that the kernel has not taken yet: `close` would drop them."""
        self.flush()
        return self._stream.backlog

    def send(self, frames: Sequence[Frame]) -> None:
        if not self._gathered:
            self._loop.call_soon(self.flush)
        self._gathered += self._encode(frames)

    def flush(self) -> None:
        if self._gathered:
            gathered, self._gathered = self._gathered, []
            self._stream.write(gathered)

    def finish(self) -> None:
        """We have said our last; what is still on its way to us is heard, until the other side ends, too."""
        self.flush()
        self._stream.finish()

    def close(self) -> None:
        self.flush()
        self._stream.close()


async def open_connection(
    place: SocketAddress,
    carrier: Carrier,
    heard: Callable[[Message | TooLarge], None],
    ended: Callable[[str], None],
    timeout: float,
    paused: Callable[[], None] = _nothing,
) -> OutgoingConnection:
    """Connect and shake hands. `paused` is told when all that came at once was heard. Raises BrokerUnavailable."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout
    try:
        connected = await connect(loop, place, timeout)
    except OSError as error:
        problem = "nobody listens there" if isinstance(error, ConnectionRefusedError) else error.strerror or str(error)
        raise BrokerUnavailable(f"no broker answers at {place}: {problem or 'timed out'}") from error
    ready: asyncio.Future[None] = loop.create_future()
    stream = Stream(loop, connected, carrier)

    def arrived(messages: Messages) -> None:
        if carrier.outgoing:
            outgoing, carrier.outgoing = carrier.outgoing, []
            stream.write(list(outgoing))
        if carrier.failure is not None:
            finish(f"{place} does not speak our language: {carrier.failure.detail}")
            return
        if carrier.ready and not ready.done():
            ready.set_result(None)
        for message in messages:
            heard(message)
        if messages:
            paused()

    def finish(problem: str) -> None:
        stream.close()
        if not ready.done():
            ready.set_exception(Ungreeted(problem))
        else:
            ended(problem)

    stream.write(list(carrier.outgoing))
    carrier.outgoing = []
    stream.start(arrived, finish)
    try:
        async with asyncio.timeout_at(deadline):
            await ready
    except TimeoutError:
        stream.close()
        raise Ungreeted(f"{place} was reached but did not greet us within {timeout:g} s") from None
    except asyncio.CancelledError:
        stream.close()
        raise
    return OutgoingConnection(loop, stream, carrier)
