"""One outgoing connection that speaks a carrier: what clients and workers stand on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from dragoman.carriers.carrier import Carrier, Frame, Message, Messages, TooLarge
from dragoman.sdk.address import Place
from dragoman.sdk.errors import BrokerUnavailable
from dragoman.streams.dial import connect
from dragoman.streams.stream import Stream


class Link:
    """Made by `open_link`; it lives until `close` or until `ended` is called."""

    def __init__(self, stream: Stream, carrier: Carrier) -> None:
        self._stream = stream
        self._carrier = carrier

    @property
    def backlog(self) -> int:
        """Bytes that the kernel has not taken yet: `close` would drop them."""
        return self._stream.backlog

    def send(self, frames: Sequence[Frame]) -> None:
        self._stream.write(self._carrier.encode(frames))

    def finish(self) -> None:
        """We have said our last; what is still on its way to us is heard, until the other side ends, too."""
        self._stream.finish()

    def close(self) -> None:
        self._stream.close()


async def open_link(
    place: Place,
    carrier: Carrier,
    heard: Callable[[Message | TooLarge], None],
    ended: Callable[[str], None],
    timeout: float,
) -> Link:
    """Connect and shake hands. Raises BrokerUnavailable."""
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

    def finish(problem: str) -> None:
        stream.close()
        if not ready.done():
            ready.set_exception(BrokerUnavailable(problem))
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
        raise BrokerUnavailable(f"{place} was reached but did not greet us within {timeout:g} s") from None
    except asyncio.CancelledError:
        stream.close()
        raise
    return Link(stream, carrier)
