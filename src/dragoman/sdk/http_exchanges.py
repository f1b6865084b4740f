"""Requests and their responses over a few connections that are kept open: what an HTTP worker stands on."""

from __future__ import annotations

import asyncio

from dragoman.carriers.carrier import Carrier, Message, TooLarge
from dragoman.dialects.http.codec import Request, Response, read_response
from dragoman.sdk.address import SocketAddress
from dragoman.sdk.errors import BrokerUnavailable
from dragoman.sdk.outgoing import OutgoingConnection, open_connection
from dragoman.sdk.recognition import Recognition
from dragoman.sdk.targets import Target

CONNECT_TIMEOUT = 5.0
IDLE = 4.0  # seconds after which a connection is not used again; the broker ends it after 15


class Exchanges:
    """Each request has a connection for itself until its response is there."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._recognition = Recognition(target, "worker")
        self._idle: list[_Connection] = []
        self._loop = asyncio.get_running_loop()

    async def ask(self, request: Request, timeout: float) -> Response:
        """Raises BrokerUnavailable. A task that is cancelled here hangs up."""
        connection = await self._connection()
        try:
            response = await connection.ask(request, timeout)
        except BaseException:
            connection.close()
            raise
        if response.is_last:
            connection.close()
        else:
            connection.idle_since = self._loop.time()
            self._idle.append(connection)
        return response

    def close(self) -> None:
        for connection in self._idle:
            connection.close()
        self._idle.clear()

    async def _connection(self) -> _Connection:
        oldest = self._loop.time() - IDLE
        while self._idle:
            connection = self._idle.pop()
            if connection.is_open and connection.idle_since >= oldest:
                return connection
            connection.close()
        connection = _Connection(self._target.place)
        await connection.open(self._target.sides.client_carrier(self._target.place), self._recognition)
        return connection


class _Connection:
    def __init__(self, place: SocketAddress) -> None:
        self._place = place
        self._link: OutgoingConnection | None = None
        self._answer: asyncio.Future[Response] | None = None
        self._problem = ""
        self.idle_since = 0.0

    @property
    def is_open(self) -> bool:
        return self._link is not None

    async def open(self, carrier: Carrier, recognition: Recognition) -> None:
        """Raises BrokerUnavailable."""
        opening = open_connection(self._place, carrier, self._heard, self._ended, CONNECT_TIMEOUT)
        self._link = await recognition.open(opening)
        recognition.is_known = True  # a broker has answered

    async def ask(self, request: Request, timeout: float) -> Response:
        if self._link is None:
            raise BrokerUnavailable(self._problem)
        self._answer = asyncio.get_running_loop().create_future()
        self._link.send(request)
        try:
            async with asyncio.timeout(timeout):
                return await self._answer
        except TimeoutError:
            raise BrokerUnavailable(f"{self._place} answered no HTTP request within {timeout:g} s") from None
        finally:
            self._answer = None

    def close(self) -> None:
        if self._link is not None:
            self._link.close()
            self._link = None

    def _heard(self, message: Message | TooLarge) -> None:
        assert not isinstance(message, TooLarge)  # this carrier ends the connection instead
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(read_response(message))

    def _ended(self, problem: str) -> None:
        self._link = None
        self._problem = problem
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(BrokerUnavailable(f"the connection to {self._place} ended: {problem}"))
